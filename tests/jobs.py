"""Query configs in memory like a user would query files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Severity
from ms_tune.dialects.check_context import CheckContext
from ms_tune.dialects.megatron import commands
from ms_tune.dialects.mindformers import operators
from ms_tune.dialects.mindformers import read as static
from ms_tune.enums import Dialect
from ms_tune.facts.query import Release, default_release
from ms_tune.job import Job, ModelFile
from ms_tune.normalize import compare_log, convert, run, sapp, sapp_lists
from ms_tune.normalize.convert import convert_job, target_of
from ms_tune.normalize.sapp_lists import parse_sapp
from ms_tune.source.shell.read import read_launches
from ms_tune.source.yaml import SourceFile, load_source
from ms_tune.text import Language, render
from ms_tune.workflows.migrate.run import migrate_job

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan
    from ms_tune.dialects.convert_layers import Converted
    from ms_tune.dialects.megatron.commands import LaunchSource
    from ms_tune.dialects.mindformers.placement import RecomputeInputs
    from ms_tune.dialects.operators import LayerModel
    from ms_tune.source.edit import ValueChange
    from ms_tune.workflows.migrate.result import Migration


def commands_in(path: Path, text: str, release: str) -> tuple[LaunchSource, ...]:
    """Return the programs of MindSpeed-LLM that a script starts, as sources for checks."""
    return commands.commands_in(read_launches(path, text), text, release)


def normalize_source(source: SourceFile, version: str | None = None, layers: int | None = None) -> LayerPlan:
    """Return the plan of a config, with the problems that its author should know."""
    return run.normalize_recompute(Job(source, version=version, layers=layers))


def plan_of(source: SourceFile, version: str | None = None, layers: int | None = None) -> LayerPlan:
    """Return the plan of a config."""
    return Job(source, version=version, layers=layers).plan


def failure(plan: LayerPlan) -> str:
    """Return the framework's exception where a config stops; there is no more of such a plan."""
    assert plan.failure is not None
    assert (plan.formative, plan.layers) == (None, ())
    assert plan.problems[0].severity is Severity.ERROR
    return f"{plan.failure.exception}: {plan.failure.text}"


def ids(found: LayerPlan | Converted) -> set[str]:
    """Return the IDs of the problems, which are texts in both languages."""
    assert all(render(problem.message, language) for problem in found.problems for language in Language)
    return {problem.id for problem in found.problems}


def remedy_of(source: SourceFile, version: str | None = None) -> tuple[ValueChange, ...]:
    """Return the remedy for a config that the framework refuses."""
    return Job(source, version=version).remedy


def static_plan(source: SourceFile, version: str | None = None, layers: int | None = None) -> LayerPlan:
    """Return the plan of a config for MindFormers' static graph."""
    return Job(source, dialect=Dialect.MINDFORMERS, version=version, layers=layers).plan


def dynamic_plan(source: SourceFile, version: str | None = None, layers: int | None = None) -> LayerPlan:
    """Return the plan of a config for MindFormers' dynamic graph."""
    return Job(source, dialect=Dialect.MINDFORMERS_PYNATIVE, version=version, layers=layers).plan


def mindspeed_plan(source: SourceFile, version: str | None = None) -> LayerPlan:
    """Return the plan of a config for MindSpeed-Core-MS."""
    return Job(source, dialect=Dialect.MINDSPEED_MS, version=version).plan


def read_recompute(
    source: SourceFile, version: str | None = None, layers: int | None = None, *, fewest: int = 1
) -> RecomputeInputs:
    """Return the layer settings of a config for MindFormers' static graph."""
    job = Job(source, dialect=Dialect.MINDFORMERS, version=version, layers=layers)
    return static.read_inputs(job, fewest=fewest)


def startup_of(source: SourceFile, version: str | None = None) -> static.Startup:
    """Return the values that MindFormers' static graph derives from the settings that checks use."""
    return Job(source, dialect=Dialect.MINDFORMERS, version=version).startup


def known_layers(source: SourceFile, inputs: RecomputeInputs) -> LayerModel | None:
    """Return the layers of the model of a config for MindFormers' static graph."""
    return operators.find_layer_model(Job(source, dialect=Dialect.MINDFORMERS, version=inputs.version).model, inputs)


def explicit(
    source: SourceFile, dialect: Dialect, version: str | None = None, layers: int | None = None
) -> convert.ExpandedConfig:
    """Return a config with its lists in explicit form."""
    return convert.expand_lists(Job(source, dialect=dialect, version=version, layers=layers))


def compare(
    source: SourceFile, paths: Sequence[Path], version: str | None = None, layers: int | None = None
) -> compare_log.Compared:
    """Compare a config's plan with logs."""
    return compare_log.compare_logs(Job(source, version=version, layers=layers), paths)


def context(source: SourceFile, dialect: Dialect, options: Mapping[str, object], version: str = "") -> CheckContext:
    """Return the context of a check for a config."""
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
    """Migrate a config to MindFormers' dynamic graph."""
    job = Job(source, version=version, sizes_from=ModelFile(model_config))
    return migrate_job(job, target, check=check, language=language)


def convert_source(source: SourceFile, to: str, version: str | None = None) -> Converted:
    """Return the equivalent settings of another dialect."""
    return convert_job(Job(source, version=version), target_of(to))


def merge_sapp(text: str, config: SourceFile | Path, version: str | None = None) -> sapp.Merged:
    """Merge SAPP's output into a config."""
    return sapp.merge_sapp(
        Job(load_source(config) if isinstance(config, Path) else config, version=version), parse_sapp(text)
    )


def convert_sapp(text: str, to: str, *, layers: int, stages: int, chunks: int = 1) -> Converted:
    """Convert SAPP's output to the settings of a dialect."""
    return sapp.convert_sapp(parse_sapp(text), sapp_lists.Sizes(layers, stages, chunks), target_of(to))


def sapp_plan(text: str, *, layers: int, stages: int, chunks: int = 1) -> LayerPlan:
    """Return the plan that SAPP printed."""
    return sapp_lists.plan_sapp(parse_sapp(text), sapp_lists.Sizes(layers, stages, chunks))
