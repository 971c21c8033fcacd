"""Compute the layer plan of a config in any dialect: the recomputation and swap of each layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import LayerPlan, LayerSpec
from ms_tune.dialects.remedy import describe
from ms_tune.errors import ExitCode, UsageError
from ms_tune.job import Job
from ms_tune.text import msg


def normalize_recompute(job: Job) -> LayerPlan:
    """Return each layer's recomputation and swap, as the job's framework decides them, with any problems.

    Args:
        job: The job of a config.

    Raises:
        ConfigError: A setting is missing or invalid, or the config is in no supported dialect.
        UnsupportedError: It uses something that is not supported.
        UsageError: The release is not supported.

    Example::

        plan = ms_tune.normalize_recompute(ms_tune.load_job("train.yaml", framework_version="1.9"))
        in_full = [layer.layer for layer in plan.layers if layer.recompute is RecomputeMode.FULL]
    """
    plan = job.plan
    if plan.failure is None and not job.source.duplicates:
        return plan
    problems = list(plan.problems)
    if plan.failure is not None and job.remedy:
        problems[0] = problems[0]._replace(help=describe(job.remedy))
    for number, one in enumerate(job.source.duplicates, 1 if plan.failure else 0):
        key, lines = ".".join(map(str, one.path)), {"first": one.first.line, "again": one.second.line}
        message = msg("normalize.duplicate-key", key=key, **lines)
        problems.insert(number, Diagnostic("duplicate-key", Severity.WARNING, message))
    return plan._replace(problems=tuple(problems))


def choose_layers(plan: LayerPlan, stage: int | None, layer: int | None) -> Sequence[LayerSpec]:
    """Return the layers of a stage, or one layer; all layers if neither is given."""
    layers = plan.layers
    if not layers or (stage is None and layer is None):
        return layers
    stages = {one.stage for one in layers} | set(range(len(plan.placement[0]) if plan.placement else 0))
    if stage is not None and stage not in stages:
        raise UsageError(msg("normalize.no-such-stage", stage=stage, first=min(stages), last=max(stages)))
    if layer is not None and layer >= len(layers):
        raise UsageError(msg("normalize.no-such-layer", layer=layer, last=len(layers) - 1))
    return [one for one in layers if stage in (None, one.stage) and layer in (None, one.layer)]


def list_warnings(problems: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return the problems with a severity above info."""
    return [problem for problem in problems if problem.severity is not Severity.INFO]


def exit_code_of(problems: Iterable[Diagnostic]) -> ExitCode:
    """Return the exit code of a command that shows these problems."""
    return ExitCode.FINDINGS if list_warnings(problems) else ExitCode.OK
