"""Checks of the recompute values that need the whole plan: :mod:`ms_tune.layers` works it out as MindFormers does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ms_tune.config.dialects.mindformers import read_recompute
from ms_tune.errors import MsTuneError
from ms_tune.layers import ENDLESS_LOOP, KEYS, normalize
from ms_tune.lint.checks import recompute, startup, swap
from ms_tune.lint.context import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.config.source import KeyPath
    from ms_tune.layers import Problem, RecomputePlan
    from ms_tune.lint.context import Context

_SECTION = "recompute_config"


# What the framework does at these steps is told by checks of their own; here it is only told if they are silent.
_TOLD = {
    "list-length": (recompute.too_long,),
    "value": (recompute.too_long, recompute.negative),
    "exclude": (recompute.too_long, recompute.negative),
    "layer": (recompute.too_long,),
    ENDLESS_LOOP: (recompute.negative,),
    "swap-config": (swap.entries,),
    "swap-rules": (swap.entries, swap.prefetch, swap.nested_layers, swap.recompute_values),
}
_FLAT_LIST = "'recompute' must provide explicit 2D"


def refused(context: Context) -> Iterator[Violation]:
    """MindFormers raises, or loops for ever, at one of the ``steps``."""
    plan = _plan(context)
    steps = context.options["steps"]
    if plan is None or plan.failure is None or not isinstance(steps, list):
        return
    step = plan.problems[0].id.removesuffix("-rejected")
    text = plan.failure.text
    if step not in steps or (step == "core" and _FLAT_LIST not in text):
        return
    if any(True for check in _TOLD.get(step, ()) for _ in check(context)):
        return
    error = f"{plan.failure.exception}: {text}" if text else plan.failure.exception
    yield Violation(_blamed(context, text), params={"error": error})


def trap(context: Context) -> Iterator[Violation]:
    """Something that MindFormers accepts although its author hardly meant it: the problem that ``id`` names."""
    plan = _plan(context)
    if plan is None:
        return
    if context.options["id"] == "stage-empty" and any(problem.id == "offset-repeated" for problem in plan.problems):
        return  # a consequence, and told as such
    for problem in plan.problems:
        if problem.id == context.options["id"]:
            params = {name: str(value) for name, value in problem.message.params.items()}
            yield Violation(_place(context, problem), params={"name": "", "pattern": "", **params})


@dataclass(frozen=True, eq=False, slots=True)
class _Asked:
    """A context as a key of the cache: the same for every check of one config."""

    context: Context
    version: str

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Asked):
            return False
        return other.version == self.version and other.context.source is self.context.source

    def __hash__(self) -> int:
        return id(self.context.source)


def _plan(context: Context) -> RecomputePlan | None:
    """The plan, or None if the config does not tell all of it."""
    return _worked_out(_Asked(context, context.version))


# Several checks ask for the plan of a config, one after the other.
@lru_cache(maxsize=1)
def _worked_out(asked: _Asked) -> RecomputePlan | None:
    context = asked.context
    stages = startup.stages(context)
    try:
        inputs = read_recompute(context.source, startup.release(context))
    except MsTuneError:
        return None
    if stages is None or inputs.stage_num or inputs.start_stage or _unsure(context):
        return None
    interleave, scheduler = startup.interleaves(context), startup.scheduler(context)
    return normalize(replace(inputs, stages=stages, interleave=interleave, scheduler=scheduler))


def _unsure(context: Context) -> bool:
    """Whether models read the layer count or the offset in different ways: nothing is said then."""
    model = context.mapping("model.model_config")
    counted = any(model.get(name) for name in ("mtp_depth", "num_nextn_predict_layers"))
    unknown = model.get("offset") is None and not startup.knows_offset(context)
    return startup.is_legacy(context) and (unknown or counted) and startup.stages(context) != 1


def _blamed(context: Context, text: str) -> KeyPath:
    """The value that the framework's text quotes, or else the first that is no switch."""
    given = [key for key in KEYS if not isinstance(context.get(f"{_SECTION}.{key}", default=False), bool)]
    quoted = [key for key in given if str(context.get(f"{_SECTION}.{key}")) in text]
    key = next(iter((*quoted, *given)), None)
    return (_SECTION, key) if key else (_SECTION,)


def _place(context: Context, problem: Problem) -> KeyPath:
    params = problem.message.params
    name = str(params.get("key") or params.get("name") or "")
    key, _, rest = name.partition("[")
    if key not in KEYS:
        offset: KeyPath = ("model", "model_config", "offset")
        return offset if context.source.get(offset) is not None else (_SECTION,)
    pattern = str(params.get("pattern", rest[1:-2]))
    value = context.get(f"{_SECTION}.{key}")
    if isinstance(value, dict) and pattern in value:
        return (_SECTION, key, pattern)
    return (_SECTION, key)
