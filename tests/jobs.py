"""What tests ask of a config that stands in memory, as a user would of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import CheckContext
from ms_tune.dialects.megatron import commands
from ms_tune.dialects.mindformers import operators
from ms_tune.dialects.mindformers import read as static
from ms_tune.enums import Dialect
from ms_tune.facts.query import Release, default_release
from ms_tune.job import Job
from ms_tune.normalize import compare_log, expand, run, sapp, sapp_lists
from ms_tune.normalize.convert import convert_job, target_of
from ms_tune.normalize.sapp_lists import parse_sapp
from ms_tune.source.shell.read import read_launches
from ms_tune.source.yaml import load_source
from ms_tune.workflows.migrate.run import migrate_job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ms_tune.dialects import LayerPlan
    from ms_tune.dialects.convert_layers import Converted
    from ms_tune.dialects.megatron.commands import LaunchSource
    from ms_tune.dialects.mindformers.placement import RecomputeInputs
    from ms_tune.dialects.operators import LayerModel
    from ms_tune.source.edit import ValueChange
    from ms_tune.source.yaml import SourceFile
    from ms_tune.text import Language
    from ms_tune.workflows.migrate.result import Migration


def commands_in(path: Path, text: str, release: str) -> tuple[LaunchSource, ...]:
    """The programs of MindSpeed-LLM that a script starts, as checks look at them."""
    return commands.commands_in(read_launches(path, text), text, release)


def normalize_source(source: SourceFile, version: str | None = None, layers: int | None = None) -> LayerPlan:
    """What each layer of a config does, with what its author should know."""
    return run.normalize_recompute(Job(source, version=version, layers=layers))


def plan_of(source: SourceFile, version: str | None = None, layers: int | None = None) -> LayerPlan:
    """What each layer of a config does."""
    return Job(source, version=version, layers=layers).plan


def remedy_of(source: SourceFile, version: str | None = None) -> tuple[ValueChange, ...]:
    """What would get the framework through a config that it refuses."""
    return Job(source, version=version).remedy


def static_plan(source: SourceFile, version: str | None = None, layers: int | None = None) -> LayerPlan:
    """What each layer of a config does in MindFormers' static graph."""
    return Job(source, dialect=Dialect.MINDFORMERS, version=version, layers=layers).plan


def dynamic_plan(source: SourceFile, version: str | None = None, layers: int | None = None) -> LayerPlan:
    """What each layer of a config does in MindFormers' dynamic graph."""
    return Job(source, dialect=Dialect.MINDFORMERS_PYNATIVE, version=version, layers=layers).plan


def mindspeed_plan(source: SourceFile, version: str | None = None) -> LayerPlan:
    """What each layer of a config does in MindSpeed-Core-MS."""
    return Job(source, dialect=Dialect.MINDSPEED_MS, version=version).plan


def read_recompute(
    source: SourceFile, version: str | None = None, layers: int | None = None, *, fewest: int = 1
) -> RecomputeInputs:
    """What a config of MindFormers' static graph says about its layers."""
    job = Job(source, dialect=Dialect.MINDFORMERS, version=version, layers=layers)
    return static.read_inputs(job, fewest=fewest)


def startup_of(source: SourceFile, version: str | None = None) -> static.Startup:
    """What MindFormers' static graph makes of the settings that checks ask for."""
    return Job(source, dialect=Dialect.MINDFORMERS, version=version).startup


def known_layers(source: SourceFile, inputs: RecomputeInputs) -> LayerModel | None:
    """The layers of the model of a config of MindFormers' static graph."""
    return operators.find_layer_model(Job(source, dialect=Dialect.MINDFORMERS, version=inputs.version).model, inputs)


def explicit(
    source: SourceFile, dialect: Dialect, version: str | None = None, layers: int | None = None
) -> expand.ExpandedConfig:
    """A config with its lists in explicit form."""
    return expand.expand_lists(Job(source, dialect=dialect, version=version, layers=layers))


def compare(
    source: SourceFile, paths: Sequence[Path], version: str | None = None, layers: int | None = None
) -> compare_log.Compared:
    """A config's plan beside logs."""
    return compare_log.compare_logs(Job(source, version=version, layers=layers), paths)


def context(source: SourceFile, dialect: Dialect, options: Mapping[str, object], version: str = "") -> CheckContext:
    """A config in front of a check."""
    release = Release("", version or default_release(dialect))
    return CheckContext(Job(source, dialect=dialect, release=release), options)


def migrate_source(  # noqa: PLR0913 - settings with defaults
    source: SourceFile,
    target: str | None = None,
    *,
    version: str | None = None,
    model_config: Path | None = None,
    check: bool = True,
    language: Language | None = None,
) -> Migration:
    """A config as one of MindFormers' dynamic graph."""
    job = Job(source, version=version, model_config=model_config)
    return migrate_job(job, target, check=check, language=language)


def convert_source(source: SourceFile, to: str, version: str | None = None) -> Converted:
    """The settings of another dialect that do what a config does."""
    return convert_job(Job(source, version=version), target_of(to))


def merge_sapp(text: str, config: SourceFile | Path, version: str | None = None) -> sapp.Merged:
    """A config with what SAPP printed in it."""
    return sapp.merge_sapp(
        Job(load_source(config) if isinstance(config, Path) else config, version=version), parse_sapp(text)
    )


def convert_sapp(text: str, to: str, *, layers: int, stages: int, chunks: int = 1) -> Converted:
    """The settings of a dialect that do what SAPP printed."""
    return sapp.convert_sapp(parse_sapp(text), sapp_lists.Sizes(layers, stages, chunks), target_of(to))


def sapp_plan(text: str, *, layers: int, stages: int, chunks: int = 1) -> LayerPlan:
    """The plan that SAPP printed."""
    return sapp_lists.plan_sapp(parse_sapp(text), sapp_lists.Sizes(layers, stages, chunks))
