"""Turns a request into runs that are ready to start: reads the config, shrinks it, picks the way to run it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dryrun.devices import Devices, devices_of
from ms_tune.dryrun.request import DEFAULT_TEMPLATE, DryrunRequest, PreparedRun
from ms_tune.dryrun.settings import with_settings
from ms_tune.dryrun.shrink import mindformers
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.facts.keys import BASE
from ms_tune.facts.query import data_folder
from ms_tune.job import Job, load_job
from ms_tune.job.includes import with_bases
from ms_tune.records import Record
from ms_tune.source.yaml import parse_source, yaml_text
from ms_tune.text import msg

if TYPE_CHECKING:
    from types import ModuleType

    from ms_tune.source.yaml import SourceFile


class LoadedConfig(Record):
    """A config that was read."""

    original: SourceFile  # as its author wrote it; as one text with what it takes from a `base_config`
    job: Job  # with the user's `--set`; of a dialect that can be run
    name: str  # what it is called before the user
    devices: Devices  # NPUs in the job, and what says so

    @property
    def source(self) -> SourceFile:
        """The config with the user's ``--set``."""
        return self.job.written

    @property
    def dialect(self) -> Dialect:
        """Its dialect."""
        return self.job.dialect

    @cached_property
    def settled(self) -> mindformers.SettledConfig:
        """What all stages of a config of MindFormers' static graph have in common."""
        return mindformers.settle_config(self.job, self.devices.npus)

    def with_source(self, source: SourceFile) -> LoadedConfig:
        """The same with another text."""
        return self._replace(job=Job(source, dialect=self.dialect))


def load_config(request: DryrunRequest, known: Job | None = None) -> LoadedConfig:
    """Read the config.

    Args:
        request: Names it.
        known: Its job, if it was read already, or is not as its file is.

    Raises:
        ConfigError: It cannot be read.
        UsageError: A setting names no place in it.
    """
    path = request.config or data_folder("yaml_templates") / DEFAULT_TEMPLATE
    known = known or load_job(path)
    original = _flatten_bases(known.written)
    dialect = known.recognition.dialect
    if dialect is None:
        reason = known.recognition.why_not
        message = msg("dryrun.not-ours", reason=reason) if reason else msg("dryrun.not-a-config")
        raise ConfigError(message, msg("dryrun.not-a-config.hint"), path=path)
    name = f"yaml_templates/{DEFAULT_TEMPLATE}" if request.config is None else _short_path(path)
    source = with_settings(original, request.settings, dialect)
    as_it_is = source is known.written and known.dialect is dialect and known.stands_alone
    job = known if as_it_is else Job(source, dialect=dialect)
    return LoadedConfig(original, job, name, devices_of(source, dialect, request.devices, path))


def prepare_run(request: DryrunRequest, loaded: LoadedConfig | None = None) -> PreparedRun:
    """A run of the stage ``request.stage`` with ``request.layers`` layers.

    Args:
        request: What the user asks for.
        loaded: The config, if it was read already.

    Raises:
        ConfigError: The config cannot be read.
        UnsupportedError: It asks for something that dryrun cannot run.
        UsageError: There is no such stage.
    """
    config = loaded or load_config(request)
    if config.dialect is Dialect.MINDFORMERS:
        run = mindformers.prepare_mindformers(config.settled, config.name, request)
    else:
        run = _dynamic_module().prepare_dynamic(config.job, config.name, request, config.devices.npus)
    run = run._replace(devices_source=config.devices.source)
    told = (msg("normalize.read-from", file=file) for file in config.original.read_from)
    return run._replace(warnings=(*told, *run.warnings))


def _flatten_bases(source: SourceFile) -> SourceFile:
    """A config in one piece, which the run gets; its own lines are no longer those of the author's file."""
    whole = with_bases(source)
    if whole is source:
        return source
    flat = parse_source(yaml_text(whole.data), source.path.with_name(f"{source.path.name}+{BASE}"))
    return flat.but(read_from=whole.read_from)


def _short_path(path: Path) -> str:
    """The path as seen from the working folder, if it lies below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _dynamic_module() -> ModuleType:
    """What prepares jobs of the dynamic graph.

    Raises:
        UnsupportedError: The reference transformer's folder, which also reads their configs, was taken out.
    """
    try:
        from ms_tune.dryrun import dynamic  # noqa: PLC0415 - the only way to ms_tune.reference, which may be gone
    except ModuleNotFoundError as error:
        if "reference" not in str(error.name).split("."):
            raise
        raise UnsupportedError(msg("reference.gone"), msg("reference.gone.hint")) from None
    return dynamic
