"""Turns a request into a run that is ready to start: reads the config, shrinks it, picks the way to run it."""

from __future__ import annotations

from pathlib import Path

from ms_tune.config.dialects.recognise import Dialect, recognise
from ms_tune.config.source import load_source
from ms_tune.dryrun.request import DEFAULT_TEMPLATE, DEFAULT_TEMPLATE_DEVICES, DryrunRequest, PreparedRun
from ms_tune.dryrun.shrink import mindformers, reference
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.resources import data_folder
from ms_tune.texts import msg


def prepare(request: DryrunRequest) -> PreparedRun:
    """Read and shrink the config.

    Raises:
        ConfigError: The config cannot be read.
        UnsupportedError: It asks for something that dryrun cannot run.
    """
    path = request.config or data_folder("yaml_templates") / DEFAULT_TEMPLATE
    devices = request.devices
    if request.config is None and devices is None:
        devices = DEFAULT_TEMPLATE_DEVICES
    source = load_source(path)
    dialect = recognise(source.data).dialect
    name = f"yaml_templates/{DEFAULT_TEMPLATE}" if request.config is None else _short(path)
    if dialect is Dialect.MINDSPEED_MS:
        return reference.prepare(source, name, request, devices)
    if dialect is Dialect.MINDFORMERS:
        return mindformers.prepare(source, name, request, devices)
    if dialect is None:
        raise ConfigError(msg("dryrun.not-a-config"), msg("dryrun.not-a-config.hint"), path=path)
    raise UnsupportedError(msg("dryrun.dialect", dialect=dialect.value), msg("dryrun.dialect.hint"))


def _short(path: Path) -> str:
    """The path as seen from the working folder, if it lies below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
