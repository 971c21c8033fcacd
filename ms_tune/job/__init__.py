"""Represent a training job as described by its files: the input of every engine.

Each part is a cached property, so it is read or computed at most once, when first needed. The code for each dialect's configs
is in its folder of :mod:`ms_tune.dialects`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path

from ms_tune.dialects import LayerPlan
from ms_tune.dialects.mindformers.read import Startup, read_startup
from ms_tune.dialects.remedy import find_remedy
from ms_tune.enums import CHECKED_ONLY, Dialect, SizeOrigin
from ms_tune.errors import ConfigError, UnsupportedError, UsageError
from ms_tune.facts.models import ModelConfig, is_legacy, model_folder, model_of
from ms_tune.facts.query import Release, load, release_for, served
from ms_tune.job.detect import Recognition, find_repository, recognise
from ms_tune.job.includes import find_named_model, with_bases, with_model_config, with_model_folder
from ms_tune.records import Any, Record
from ms_tune.source.edit import ValueChange
from ms_tune.source.yaml import SourceFile, load_source, parse_source, read_text
from ms_tune.text import Message, msg

_MOST_SECTIONS = (
    40  # sections before an error, such as a bracket that is not closed, that are left out to read the others
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.job.checkout import Checkout


class ModelFile(Record):
    """Where the sizes of a model may come from in addition to its config."""

    path: Path | None = None  # the `config.json` that the user named, or its folder
    assumes: bool = False  # whether a public model that the config names has its published sizes


class ModelSizes(Record):
    """The origin of the sizes of a job's model."""

    origin: SizeOrigin
    file: Path | None = None  # the `config.json`
    model: str | None = None  # the public model
    key: str | None = None  # the key that names it


def load_job(
    path: str | Path,
    *,
    dialect: Dialect | None = None,
    framework_version: str | None = None,
    layers: int | None = None,
    model_config: Path | None = None,
) -> Job:
    """Read a config and return the job that the other functions work on.

    Args:
        path: The file.
        dialect: Its dialect; None to recognise it.
        framework_version: Its release; None for that of the surrounding checkout, the installed one, or the default.
        layers: The number of layers, for a config that does not state it.
        model_config: The model's ``config.json``, or its folder, if it is not at the path in the config.

    Raises:
        ConfigError: The file cannot be read, or is not one YAML mapping of a reasonable size.

    Example::

        job = ms_tune.load_job("train.yaml", framework_version="1.9")
        print(job.dialect, job.release.version, job.plan.placement)
    """
    source = load_source(Path(path))
    sizes = ModelFile(model_config)
    return Job(source, dialect=dialect, version=framework_version, layers=layers, sizes_from=sizes)


def no_model_config(file: Path) -> UsageError:
    """Return the error for a ``config.json`` that the user named although this file does not read one."""
    return UsageError(msg("config.model-json.legacy", file=file), msg("config.model-json.legacy.hint"))


def not_simulated(dialect: Dialect, path: Path) -> UnsupportedError:
    """Return the error for a config that is checked, but whose layers are not read."""
    params = {"framework": load("releases")[dialect.value]["framework"], "file": path}
    return UnsupportedError(msg("config.checked-only", **params), msg("config.checked-only.hint", **params))


def load_sections(path: Path, line: int) -> Job | None:
    """Return the job of the sections that can be read of a config that is not valid YAML at a line; None if none can."""
    try:
        lines = read_text(path).splitlines(keepends=True)
    except ConfigError:
        return None
    starts = [number for number, one in enumerate(lines) if one[0].isalpha()]
    following = next((number for number in starts if number >= line), len(lines))
    for start in [number for number in reversed(starts) if number < line][:_MOST_SECTIONS]:
        for rest in (lines[following:], []):
            try:
                return Job(parse_source("".join((*lines[:start], *rest)), path))
            except ConfigError:
                continue
    return None


class Job:
    """One config, read for one release of its framework.

    Args:
        written: The config as its author wrote it.
        dialect: Its dialect, if the user names it; None to recognise it.
        version: Its release, if the user names it; None to determine it.
        layers: The number of layers, for a config that does not state it.
        sizes_from: Where the sizes of its model may come from in addition.
        release: The release, if already known; it overrides ``version``.
    """

    def __init__(  # noqa: PLR0913 - settings with defaults
        self,
        source: SourceFile,
        *,
        dialect: Dialect | None = None,
        version: str | None = None,
        layers: int | None = None,
        sizes_from: ModelFile = ModelFile(),  # noqa: B008 - immutable
        release: Release | None = None,
    ) -> None:
        self.original, self.version, self.layers = source, version, layers
        self._named_dialect, self.sizes_from = dialect, sizes_from
        self.lacks_bases = False  # whether it builds on files that cannot be read
        if release is not None:
            self.release = release

    def with_source(self, source: SourceFile) -> Job:
        """Return a copy of the job with another config of the same dialect and release, which includes no other files."""
        job = Job(source, dialect=self.dialect, version=self.version, layers=self.layers, release=self.release)
        job.merged = job.source = source
        return job

    def for_release(self, version: str) -> Job:
        """Return a copy of the job that is read for another release."""
        job = Job(self.original, dialect=self.dialect, version=version, layers=self.layers, sizes_from=self.sizes_from)
        job.merged, job.source, job.sizes = self.merged, self.source, self.sizes
        return job

    def for_text(self, source: SourceFile) -> Job:
        """Return the job of a changed text of the same config."""
        return Job(source, dialect=self.dialect, sizes_from=self.sizes_from)

    @property
    def is_self_contained(self) -> bool:
        """Return whether the result depends on the config's text alone: no other files, no options, the default release."""
        same = self.original is self.merged is self.source and model_folder(self.original.data) is None
        return same and self.layers is None and self.release == release_for(self.dialect)

    def follow_bases(self) -> Iterator[tuple[str, ConfigError]]:
        """Read the configs that this one builds on; if that fails, continue without them and yield the error."""
        try:
            self.merged  # noqa: B018 - reads it
        except ConfigError as error:
            self.merged, self.lacks_bases = self.original, True
            yield "base-config", error

    def follow_model(self) -> Iterator[tuple[str, ConfigError]]:
        """Read the ``config.json`` of the model; if that fails, continue without it and yield the error."""
        try:
            if self.dialect is not Dialect.MINDFORMERS:
                self.source = self.merged
            self.source  # noqa: B018 - reads it
        except ConfigError as error:
            self.source = self.merged
            yield "model-json", error

    @property
    def reads_model_config(self) -> bool:
        """Return whether its framework reads the ``config.json`` of the model: the static graph does, for non-legacy models."""
        return self.dialect is Dialect.MINDFORMERS and not is_legacy(self.merged.data)

    @cached_property
    def without_base(self) -> Job:
        """Return the job of the file by itself, without the settings of its ``base_config``."""
        if self.merged is self.original:
            return self
        return self.with_source(
            self.original.replace(model_config=self.source.model_config, read_from=self.source.read_from)
        )

    @cached_property
    def merged(self) -> SourceFile:
        """Return the config with the settings of its ``base_config``.

        Raises:
            ConfigError: A file that it builds on cannot be read, or is outside the user's folders.
        """
        return with_bases(self.original)

    @cached_property
    def source(self) -> SourceFile:
        """Return the config with everything from other files: its bases, and the ``config.json`` of its model.

        Raises:
            ConfigError: One of them cannot be read.
            UsageError: The user named a ``config.json``, but such a config does not read one.
        """
        whole, (path, assumes) = self.merged, self.sizes_from
        if path is None and not assumes and model_folder(whole.data) is None and is_legacy(whole.data):
            return whole
        if path is not None:
            if not self.reads_model_config:
                raise no_model_config(self.original.path)
            source = with_model_config(whole, path)
            self.sizes = ModelSizes(SizeOrigin.OPTION, file=source.read_from[-1])
            return source
        source = with_model_folder(whole)
        if source.model_config is not None:
            self.sizes = ModelSizes(SizeOrigin.FOLDER, file=next(reversed(source.read_from), None))
        elif assumes and self.reads_model_config and (found := find_named_model(whole)) is not None:
            key, model = found
            self.sizes = ModelSizes(SizeOrigin.ASSUMED, model=model.name, key=key)
            source = source.replace(model_config=dict(model.config))
        return source

    @cached_property
    def sizes(self) -> ModelSizes:
        """Return where the sizes of the model were found.

        Raises:
            ConfigError: The ``config.json`` of the model cannot be read.
            UsageError: The user named a ``config.json``, but such a config does not read one.
        """
        self.source  # noqa: B018 - sets it if they come from elsewhere
        return vars(self).get("sizes") or ModelSizes(SizeOrigin.CONFIG)

    @cached_property
    def checkout(self) -> Checkout | None:
        """Return the repository around the file; None without one; for HyperParallel elsewhere, the installed package."""
        repository, is_trainers = find_repository(self.original.path), self.dialect is Dialect.HYPER_PARALLEL
        if repository is None and not is_trainers:
            return None
        from ms_tune.job.checkout import Checkout, find_trainer  # noqa: PLC0415 - Python's parser is slow to import, and few files need it

        repository = find_trainer(repository) if is_trainers else repository
        return None if repository is None else Checkout(*repository)

    @cached_property
    def release_around(self) -> tuple[str, str] | None:
        """Return the supported release nearest to that of the surrounding checkout, and the version that the checkout states.

        If all supported releases are later, it is the checkout's own release. None if the user names a release, or it cannot be
        determined from the checkout.
        """
        repository = find_repository(self.original.path) if self.version is None else None
        if repository is None or repository[1] is None or self.checkout is None:
            return None
        return self.checkout.nearest_release(self.dialect)

    @cached_property
    def outdated_because(self) -> Message | None:
        """Return why the config is for a release that is earlier than all supported ones; None if it is not.

        The surrounding checkout shows that, or a key that only such a release has; the user can name another release.
        """
        around, dialect, key = self.release_around, self.dialect, self._outdated_key
        if around is not None:
            is_served = around[0] in served(dialect)
            return None if is_served else msg("config.outdated", framework=self.release.framework, version=around[1])
        about = load("releases")[dialect.value]
        if key is None:
            return None
        return msg("config.outdated.key", framework=about["framework"], version=about["outdated"]["before"], key=key)

    @cached_property
    def recognition(self) -> Recognition:
        """Return the recognised dialect and the evidence for it."""
        return recognise(self.merged.data)

    @cached_property
    def dialect(self) -> Dialect:
        """Return the dialect that the user named or that was recognised.

        Raises:
            ConfigError: It is not a supported one.
        """
        found = self._named_dialect or self.recognition.dialect
        if found is None:
            reason = self.recognition.why_not
            message = msg("normalize.not-ours", reason=reason) if reason else msg("normalize.no-dialect")
            raise ConfigError(message, msg("normalize.no-dialect.hint"), path=self.original.path)
        return found

    @cached_property
    def release(self) -> Release:
        """Return the framework and release: named by the user, of the surrounding checkout, installed, or the default.

        Raises:
            UnsupportedError: The named release is not supported.
        """
        release = release_for(self.dialect, self.version)
        if self.release_around is not None:
            framework = self.checkout.framework if self.checkout is not None else None
            return Release(framework or release.framework, self.release_around[0])
        is_elsewhere = self.checkout is None or self.checkout.framework != release.framework
        is_generation = self.dialect is Dialect.HYPER_PARALLEL  # its repository does not state one
        if self.dialect in CHECKED_ONLY and self.version is None and (is_elsewhere or is_generation):
            return Release(release.framework, self.part("detect").release_of(self.merged.data) or release.version)
        if self._outdated_key is not None:
            return Release(release.framework, load("releases")[self.dialect.value]["outdated"]["version"])
        return release

    @cached_property
    def _outdated_key(self) -> str | None:
        keys = load("releases")[self.dialect.value].get("outdated", {}).get("keys", ()) if self.version is None else ()
        return next((one for one in keys if one in self.merged.data), None)

    @cached_property
    def model(self) -> ModelConfig:
        """Return the model with all settings, including those that the framework's class fills in."""
        return model_of(self.source, self.dialect, self.release.version, self.source.model_config)

    def part(self, name: str) -> Any:  # noqa: ANN401 - the caller knows the type
        """Import and return one module (``read``, ``write`` ...) of its dialect: a run needs one dialect, not all."""
        return import_module(f"ms_tune.dialects.{self.dialect.value.replace('-', '_')}.{name}")

    @cached_property
    def startup(self) -> Startup:
        """Return settings that many checks need, as MindFormers' static graph resolves them."""
        return read_startup(self)

    @cached_property
    def plan(self) -> LayerPlan:
        """Return each layer's recomputation, swap and pipeline stage, as the framework assigns them.

        Raises:
            ConfigError: A setting is missing or impossible.
            UnsupportedError: The config needs something that is not supported.
        """
        self.release  # noqa: B018 - raises for an unsupported release, whose rules are unknown
        if self.outdated_because is not None:
            hint = msg("config.outdated.hint", version=served(self.dialect)[0], file=self.original.path)
            raise UnsupportedError(self.outdated_because, hint)
        if self.dialect in CHECKED_ONLY and not self.original.is_code:
            raise not_simulated(self.dialect, self.original.path)
        plan: LayerPlan = self.part("read").plan_layers(self)
        read = tuple(map(str, self.source.read_from))
        return plan._replace(read_from=read) if read else plan

    @cached_property
    def remedy(self) -> tuple[ValueChange, ...]:
        """Return changes that make the framework accept a config it refuses, verified by its own rules; empty if none are known."""
        if self.plan.failure is None:
            return ()
        return find_remedy(self)
