"""A training job as its files tell it: what every engine is given.

Nothing is read or worked out before somebody asks, and nothing twice: each part is a cached property. What a dialect makes of the
config is in its folder of :mod:`ms_tune.dialects`.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from pathlib import Path

from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.keys import BASE
from ms_tune.facts.models import model_folder, model_of
from ms_tune.facts.query import Release, release_for
from ms_tune.job.detect import find_repository, recognise
from ms_tune.source.yaml import load_source
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ms_tune.dialects import LayerPlan
    from ms_tune.dialects.mindformers.read import Startup
    from ms_tune.facts.models import ModelConfig
    from ms_tune.job.checkout import Checkout
    from ms_tune.job.detect import Recognition
    from ms_tune.source.edit import ValueChange
    from ms_tune.source.yaml import SourceFile


def load_job(
    path: str | Path,
    *,
    dialect: Dialect | None = None,
    framework_version: str | None = None,
    layers: int | None = None,
    model_config: Path | None = None,
) -> Job:
    """Read a config: what the other functions are asked about, and what is known of it before anybody asks them.

    Args:
        path: The file.
        dialect: What it is written for; None to recognise it.
        framework_version: The release that it is for; None for that of the checkout around it, the installed one, or the default.
        layers: The number of layers, for a config that does not tell it.
        model_config: The model's ``config.json``, or its folder, where that is not where the config says.

    Raises:
        ConfigError: The file cannot be read, or is not one YAML mapping of a sane size.

    Example::

        job = ms_tune.load_job("train.yaml", framework_version="1.9")
        print(job.dialect, job.release.version, job.plan.placement)
    """
    source = load_source(Path(path))
    return Job(source, dialect=dialect, version=framework_version, layers=layers, model_config=model_config)


class Job:
    """One config, read for one release of its framework.

    Args:
        written: The config as its author wrote it.
        dialect: What it is written for, where the user says so; None to recognise it.
        version: The release that it is for, where the user says so; None for the installed one, or the default.
        layers: The number of layers, for a config that does not tell it.
        model_config: The model's ``config.json``, or its folder, where that is not where the config says.
        release: The release, where it is known already; then ``version`` does not count.
    """

    def __init__(  # noqa: PLR0913 - settings with defaults
        self,
        written: SourceFile,
        *,
        dialect: Dialect | None = None,
        version: str | None = None,
        layers: int | None = None,
        model_config: Path | None = None,
        release: Release | None = None,
    ) -> None:
        self.written, self.version, self.layers = written, version, layers
        self._named_dialect, self._model_config = dialect, model_config
        self.lacks_bases = False  # whether it builds on files that cannot be read
        if release is not None:
            self.release = release

    def with_source(self, source: SourceFile) -> Job:
        """The same job of another config, which needs nothing more of other files; it is of the same dialect and release."""
        job = Job(source, dialect=self.dialect, version=self.version, layers=self.layers, release=self.release)
        job.whole = job.source = source
        return job

    def for_release(self, version: str) -> Job:
        """The same job read for another release."""
        job = Job(self.written, dialect=self.dialect, version=version, layers=self.layers)
        job.whole, job.source = self.whole, self.source
        return job

    @property
    def stands_alone(self) -> bool:
        """Whether nothing of other files and nothing that a user says counts: it is read from its text, for the release by default."""
        same = self.written is self.whole is self.source and model_folder(self.written.data) is None
        return same and self.layers is None and self.release == release_for(self.dialect)

    def follow_bases(self) -> Iterator[tuple[str, ConfigError]]:
        """Read what the config builds on; where that cannot be read, do without it, and yield why."""
        try:
            self.whole  # noqa: B018 - reads it
        except ConfigError as error:
            self.whole, self.lacks_bases = self.written, True
            yield "base-config", error

    def follow_model(self) -> Iterator[tuple[str, ConfigError]]:
        """Read the ``config.json`` of a model likewise, which MindFormers' static graph alone does."""
        try:
            if self.dialect is not Dialect.MINDFORMERS:
                self.source = self.whole
            self.source  # noqa: B018 - reads it
        except ConfigError as error:
            self.source = self.whole
            yield "model-json", error

    @property
    def has_named_model_config(self) -> bool:
        """Whether the user names the ``config.json`` of the model."""
        return self._model_config is not None

    @cached_property
    def alone(self) -> Job:
        """The job of the file by itself, without what its ``base_config`` says."""
        if self.whole is self.written:
            return self
        return self.with_source(self.written.but(beside=self.source.beside, read_from=self.source.read_from))

    @cached_property
    def whole(self) -> SourceFile:
        """The config with the settings of its ``base_config``.

        Raises:
            ConfigError: A file that it builds on cannot be read, or leads out of the user's folders.
        """
        if BASE not in self.written.data:
            return self.written
        from ms_tune.job.includes import with_bases  # noqa: PLC0415 - most configs stand alone

        return with_bases(self.written)

    @cached_property
    def source(self) -> SourceFile:
        """The config with everything that it takes from other files: its bases, and the ``config.json`` of its model.

        Raises:
            ConfigError: One of them cannot be read.
            UsageError: A ``config.json`` is named, and such a config reads none.
        """
        if self._model_config is None and model_folder(self.whole.data) is None:
            return self.whole
        from ms_tune.job.includes import with_model_config, with_model_folder  # noqa: PLC0415 - as above

        if self._model_config is not None:
            return with_model_config(self.whole, self._model_config)
        return with_model_folder(self.whole)

    @cached_property
    def checkout(self) -> Checkout | None:
        """The repository around the file; None where there is none."""
        repository = find_repository(self.written.path)
        if repository is None:
            return None
        from ms_tune.job.checkout import Checkout  # noqa: PLC0415 - Python's parser is slow to import, and few files need it

        return Checkout(*repository)

    @cached_property
    def release_around(self) -> tuple[str, str] | None:
        """The served release that is nearest to that of the checkout around the file, and what that says that it is.

        None where the user names a release, or nothing around the file tells one.
        """
        repository = find_repository(self.written.path) if self.version is None else None
        if repository is None or repository[1] is None or self.checkout is None:
            return None
        return self.checkout.nearest_release(self.dialect)

    @cached_property
    def recognition(self) -> Recognition:
        """What the config looks like."""
        return recognise(self.whole.data)

    @cached_property
    def dialect(self) -> Dialect:
        """The dialect: named by the user, or recognised.

        Raises:
            ConfigError: It is of none that is served.
        """
        found = self._named_dialect or self.recognition.dialect
        if found is None:
            reason = self.recognition.why_not
            message = msg("normalize.not-ours", reason=reason) if reason else msg("normalize.no-dialect")
            raise ConfigError(message, msg("normalize.no-dialect.hint"), path=self.written.path)
        return found

    @cached_property
    def release(self) -> Release:
        """The framework and its release: named by the user, that of the checkout around the file, the installed one, or the default.

        Raises:
            UnsupportedError: The one that is named is not served.
        """
        release = release_for(self.dialect, self.version)
        return release if self.release_around is None else Release(release.framework, self.release_around[0])

    @cached_property
    def model(self) -> ModelConfig:
        """The model, with what the framework's class makes of its settings, left out or not."""
        return model_of(self.source, self.dialect, self.release.version, self.source.beside)

    def part(self, name: str) -> Any:  # noqa: ANN401 - what a part has is for the caller to know
        """One part (``read``, ``write`` ...) of its dialect: a run needs one dialect, not all."""
        return import_module(f"ms_tune.dialects.{self.dialect.value.replace('-', '_')}.{name}")

    @cached_property
    def startup(self) -> Startup:
        """What MindFormers' static graph makes of the settings that many checks ask for."""
        startup: Startup = self.part("read").read_startup(self)
        return startup

    @cached_property
    def plan(self) -> LayerPlan:
        """What each layer recomputes and swaps, and where it lies, as the framework decides it.

        Raises:
            ConfigError: A setting is missing or cannot be.
            UnsupportedError: The config needs something that is not served.
        """
        self.release  # noqa: B018 - one that is not served has no rules
        if self.dialect not in YAML_DIALECTS and not self.written.is_code:
            raise ConfigError(msg("normalize.no-dialect"), msg("normalize.no-dialect.hint"), path=self.written.path)
        plan: LayerPlan = self.part("read").plan_layers(self)
        read = tuple(map(str, self.source.read_from))
        return plan._replace(read_from=read) if read else plan

    @cached_property
    def remedy(self) -> tuple[ValueChange, ...]:
        """The changes with which the framework goes on where it refuses the config, proved by its own rules; none if none is known."""
        if self.plan.failure is None:
            return ()
        from ms_tune.dialects.remedy import find_remedy  # noqa: PLC0415 - only for what is wrong

        return find_remedy(self)
