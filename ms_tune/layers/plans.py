"""A normalised plan: the same for every dialect, so that a renderer or a conversion need not know where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.layers.result import ENDLESS_LOOP, Failure, Problem, Severity
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.layers.result import FrameworkStop, LayerPlan, RecomputePlan
    from ms_tune.texts import Message

MINDFORMERS = "mindformers"
MINDFORMERS_PYNATIVE = "mindformers-pynative"
MINDSPEED_MS = "mindspeed-ms"


@dataclass(frozen=True, slots=True)
class NormalizedPlan:
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
        matches: What each pattern of the plan finds in the model's layers, if they are known.
    """

    dialect: str
    framework_version: str
    placement: tuple[tuple[int, ...], ...] | None
    formative: Mapping[str, object] | None
    layers: tuple[LayerPlan, ...]
    problems: tuple[Problem, ...]
    log: tuple[str, ...] = ()
    failure: Failure | None = None
    matches: Mapping[str, tuple[str, ...]] | None = None


def from_recompute_plan(plan: RecomputePlan, framework_version: str) -> NormalizedPlan:
    """The plan of a static-graph MindFormers config in the common form."""
    return NormalizedPlan(
        dialect=MINDFORMERS,
        framework_version=framework_version,
        placement=plan.placement.counts if plan.placement else None,
        formative=plan.formative.as_lists() if plan.formative else None,
        layers=plan.layers,
        problems=plan.problems,
        log=plan.log,
        failure=plan.failure,
    )


def failure_of(stop: FrameworkStop, layer: int | None = None) -> Failure:
    """The failure that a framework's exception amounts to."""
    return Failure(stop.exception, stop.text, layer)


def failure_problem(step: str, framework: str, stop: FrameworkStop, remark: Message | None = None) -> Problem:
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
    return Problem(f"{step}-rejected", Severity.ERROR, message)
