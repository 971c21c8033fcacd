"""A normalised plan: the same for every dialect, so that a renderer or a conversion need not know where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects.layer_specs import write_specs
from ms_tune.dialects.plan_result import ENDLESS_LOOP, Failure, LayerSpec
from ms_tune.enums import RecomputeMode
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ms_tune.dialects.plan_result import FrameworkStop, RecomputePlan
    from ms_tune.text import Message

MINDFORMERS = "mindformers"
MINDFORMERS_PYNATIVE = "mindformers-pynative"
MINDSPEED_MS = "mindspeed-ms"
MEGATRON = "megatron"


class LayerPlan(NamedTuple):
    """What every layer of a config does, and how its framework spells that out.

    Args:
        dialect: The dialect that the config is written in.
        framework_version: The release whose rules were applied.
        placement: Layers of each cell: chunks x stages. None when the framework refuses the placement.
        formative: The values spelled out in full, as plain lists, by the dialect's own key names. None when the
            framework raises.
        layers: One entry a layer, in order; empty when ``formative`` is None.
        problems: Everything worth saying, the framework's own failure first.
        log: What the framework logs about it, as far as that follows from the config.
        failure: Where the framework stops, if it does.
        matches: What each pattern of the layers finds in them, if the model's operators are known and the layers name
            patterns.
        switched_on: The layers with all patterns that the lists switch on for them, where ``layers`` has only those
            that find something. Empty where the two are the same.
        read_from: The files beside the config whose settings are in the plan.
    """

    dialect: str
    framework_version: str
    placement: tuple[tuple[int, ...], ...] | None
    formative: Mapping[str, object] | None
    layers: tuple[LayerSpec, ...]
    problems: tuple[Diagnostic, ...]
    log: tuple[str, ...] = ()
    failure: Failure | None = None
    matches: Mapping[str, tuple[str, ...]] | None = None
    switched_on: tuple[LayerSpec, ...] = ()
    read_from: tuple[str, ...] = ()


def from_recompute_plan(plan: RecomputePlan, framework_version: str) -> LayerPlan:
    """The plan of a static-graph MindFormers config in the common form."""
    return LayerPlan(
        dialect=MINDFORMERS,
        framework_version=framework_version,
        placement=plan.placement.counts if plan.placement else None,
        formative=plan.formative.as_lists() if plan.formative else None,
        layers=plan.layers,
        problems=plan.problems,
        log=plan.log,
        failure=plan.failure,
    )


def recomputes(dialect: str, devices: int) -> bool:
    """Whether a framework looks at settings of recompute and swap in a job with so many devices.

    MindFormers' dynamic graph does not on one: ``Trainer.__init__`` leaves ``parallelize_model`` out, which does both
    (mindformers/pynative/trainer/trainer.py, 2.0 and 2.1).
    """
    return dialect != MINDFORMERS_PYNATIVE or devices != 1


def on_devices(plan: LayerPlan, devices: int) -> LayerPlan:
    """What the layers of a plan do in a job with so many devices."""
    if recomputes(plan.dialect, devices):
        return plan
    idle = (LayerSpec(one.layer, one.stage, one.chunk, RecomputeMode.NONE, kind=one.kind) for one in plan.layers)
    return plan._replace(layers=tuple(idle), switched_on=())


def unmatched_cells(
    key: str, pattern: str, found: Mapping[tuple[int, int, int], bool], *, everywhere: bool
) -> Diagnostic | None:
    """The problem that tells in which cells a pattern finds nothing, although it is for layers of theirs.

    Args:
        key: The setting.
        pattern: The pattern.
        found: Whether it finds anything, for each (chunk, stage, layer) that it is for.
        everywhere: Whether it is for all layers: then it is meant for those that have the operator, most likely.
    """
    missed: dict[tuple[int, int], list[int]] = {}
    for chunk, stage, layer in found:
        missed.setdefault((chunk, stage), []).append(layer)
    hit = {(chunk, stage) for (chunk, stage, _), one in found.items() if one}
    cells = "; ".join(
        f"chunk {chunk}, stage {stage}, layer {', '.join(write_specs(layers))}"
        for (chunk, stage), layers in sorted(missed.items())
        if (chunk, stage) not in hit
    )
    if not cells:
        return None
    severity = Severity.INFO if everywhere else Severity.WARNING
    return Diagnostic("cell-unmatched", severity, msg("plans.cell-unmatched", key=key, pattern=pattern, cells=cells))


def as_written(layers: Iterable[LayerSpec], known: Callable[[str], bool] | None = None) -> Iterator[Diagnostic]:
    """The note that patterns of the layers are shown as written; ``known`` tells those that are not."""
    patterns = dict.fromkeys(
        pattern
        for layer in layers
        for pattern in (
            *layer.select_patterns,
            *layer.comm_patterns,
            *layer.select_excludes,
            *layer.comm_excludes,
            *layer.overridden,
            *(swap.target for swap in layer.swap),
        )
        if pattern and not (known and known(pattern))
    )
    if patterns:
        yield Diagnostic("as-written", Severity.INFO, msg("plans.as-written", patterns=", ".join(patterns)))


def failure_of(stop: FrameworkStop, layer: int | None = None) -> Failure:
    """The failure that a framework's exception amounts to."""
    return Failure(stop.exception, stop.text, layer)


def failure_problem(step: str, framework: str, stop: FrameworkStop, remark: Message | None = None) -> Diagnostic:
    """The problem that tells of a failure.

    Args:
        step: What the framework was doing; the last part of a text ``plans.step.*`` and of the problem's id.
        framework: The framework's name.
        stop: What it raised.
        remark: What its author should know beyond the exception.
    """
    what = f"{stop.exception}: {stop.text}" if stop.text else stop.exception
    if stop.exception == ENDLESS_LOOP:
        what = ENDLESS_LOOP
    where = msg(f"plans.step.{step}")
    why = remark or stop.why
    if why is None:
        message = msg("plans.rejected", framework=framework, where=where, what=what)
    else:
        message = msg("plans.rejected-why", framework=framework, where=where, what=what, why=why)
    return Diagnostic(f"{step}-rejected", Severity.ERROR, message)
