"""Checks of the recompute values that need the whole plan: :mod:`ms_tune.layers` works it out as MindFormers does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Severity
from ms_tune.dialects.check_context import CheckContext, Violation, per_job
from ms_tune.dialects.layer_plan import ENDLESS_LOOP, PlanIssue
from ms_tune.dialects.mindformers import inputs as startup
from ms_tune.dialects.mindformers import refusals
from ms_tune.dialects.mindformers.inputs import KEYS
from ms_tune.dialects.mindformers.plan import normalize
from ms_tune.dialects.mindformers.read import read_inputs
from ms_tune.dialects.values import compile_segment, is_risky
from ms_tune.errors import MsTuneError
from ms_tune.facts.models import UNKNOWN
from ms_tune.facts.registries import cells_of
from ms_tune.lint.checks import legacy_glm, legacy_llama

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import Diagnostic, KeyPath
    from ms_tune.dialects.layer_plan import LayerPlan, RecomputePlan
    from ms_tune.job.job import Job

_SECTION = "recompute_config"


# What the framework does at these steps is told by checks of their own; here it is only told if they are silent.
_REPORTED = {
    "list-length": (refusals.too_long,),
    "value": (refusals.too_long, refusals.negative),
    "exclude": (refusals.too_long, refusals.negative),
    "layer": (refusals.too_long,),
    ENDLESS_LOOP: (refusals.negative,),
    "swap-config": (refusals.entries,),
    "swap-rules": (refusals.entries, refusals.prefetch, refusals.nested_layers, refusals.recompute_values),
}
_FINDS_NOTHING = (PlanIssue.PATTERN_UNMATCHED, PlanIssue.PATTERN_CELL, PlanIssue.CELL_UNMATCHED)
_SHOWN = 8  # layers in one message
# What gives its result to what in a layer of Llama; between attention and the feed-forward part are an addition and a norm.
_FLOW = (
    *(("attention_norm", "attention"), ("attention", "feed_forward"), ("ffn_norm", "feed_forward")),
    *(
        ("feed_forward.w1", "feed_forward.mul"),
        ("feed_forward.w3", "feed_forward.mul"),
        ("feed_forward.mul", "feed_forward.w2"),
    ),
    ("attention.flash_attention", "attention.wo"),
)
_FLAT_LIST = "'recompute' must provide explicit 2D"


def refused(context: CheckContext) -> Iterator[Violation]:
    """MindFormers raises, or loops for ever, at one of the ``steps``."""
    plan = _plan(context)
    steps = context.options["steps"]
    if plan is None or plan.failure is None or not isinstance(steps, list):
        return
    step = plan.problems[0].id.removesuffix("-rejected")
    text = plan.failure.text
    if step not in steps or (step == "core" and _FLAT_LIST not in text):
        return
    if any(True for check in _REPORTED.get(step, ()) for _ in check(context)):
        return
    error = f"{plan.failure.exception}: {text}" if text else plan.failure.exception
    yield Violation(_blamed(context, text), params={"error": error})


def trap(context: CheckContext) -> Iterator[Violation]:
    """Something that MindFormers accepts although its author hardly meant it.

    The option ``id`` names the problem of :mod:`ms_tune.layers`, and ``at`` the key path to point at, if the problem
    does not name it.
    """
    plan = _plan(context)
    if plan is None:
        return
    if context.options["id"] == PlanIssue.STAGE_EMPTY and any(
        problem.id == PlanIssue.OFFSET_REPEATED for problem in plan.problems
    ):
        return  # a consequence, and told as such
    for problem in plan.problems:
        if problem.id == context.options["id"] and not _is_off(context, problem):
            yield Violation(_place(context, problem), params=_params(problem))


def of_everything(context: CheckContext) -> Iterator[Violation]:
    """A pattern whose last part stands for every attribute of a cell, or is no expression at all.

    ``set_pattern_recompute`` goes through ``dir(cell)``, where ``__class__`` is the first with a ``recompute`` of its own:
    it is called without a cell, and raises. Only where the part before is sure to match a cell it is told.
    """
    plan = _plan(context)
    network = _network(context)
    if plan is None or plan.failure is not None or network is None:
        return
    used = [
        pattern
        for layer in plan.layers
        for pattern in (*layer.select_patterns, *layer.comm_patterns, *layer.select_excludes, *layer.comm_excludes)
    ]
    cells = cells_of(network)
    for pattern in dict.fromkeys(used):
        before, _, last = pattern.rpartition(r"\.")
        within = not before or any(_stands_for(before, name) for name in cells)
        if within and r"\." not in before:
            wrong = _wrong(last)
            if wrong or _stands_for(last, "__class__"):
                params = {"pattern": pattern, "error": wrong}
                yield Violation(_place_of(context, pattern), "broken" if wrong else "default", params)


def _network(context: CheckContext) -> str | None:
    """Which network's cells are those of the model, if they are known."""
    if not startup.is_legacy(context):
        return "core"
    return "legacy" if legacy_llama.is_llama(context) else "glm" if legacy_glm.is_glm(context) else None


def _wrong(segment: str) -> str:
    """What is wrong with a part of a pattern that is no regular expression."""
    try:
        compile_segment(segment)
    except re.error as error:
        return str(error)
    return ""


def _stands_for(segment: str, name: str) -> bool:
    return not is_risky(segment) and not _wrong(segment) and compile_segment(segment).fullmatch(name) is not None


def _place_of(context: CheckContext, pattern: str) -> KeyPath:
    """The first setting that has a pattern."""
    for key in KEYS[1:]:
        value = context.get(f"{_SECTION}.{key}")
        if isinstance(value, dict) and pattern in value:
            return (_SECTION, key, pattern)
        if isinstance(value, list) and pattern in value:
            return (_SECTION, key, value.index(pattern))
    return (_SECTION,)


def _is_off(context: CheckContext, problem: Diagnostic) -> bool:
    """Whether a pattern is one of the default patterns of a setting that asks for nothing."""
    return problem.id == PlanIssue.PATTERN_EXCLUDED and not context.get(f"{_SECTION}.{problem.message.params['key']}")


def unmatched(context: CheckContext) -> Iterator[Violation]:
    """A pattern that finds no operator in any layer of the model, or in a cell it is for, if its layers are known.

    ``facts/data/trees.json`` has the cells and operators of the layers of every model that MindFormers trains.
    """
    named = [context.get(f"{_SECTION}.{key}") for key in KEYS[1:]] + [context.get("swap_config.op_swap")]
    if not any(named):
        return
    try:
        problems = context.job.plan.problems
    except MsTuneError:
        return
    for problem in problems:
        if problem.id in _FINDS_NOTHING and problem.severity is not Severity.INFO:
            yield Violation(_place(context, problem), problem.id, _params(problem))


def swap_for_recompute(context: CheckContext) -> Iterator[Violation]:
    """Swapped operators whose results go to recomputed ones: the second rule of MindFormers' guide on memory.

    Which cells follow each other in a layer is ``LLamaDecodeLayer.construct`` and ``LLamaFeedForward.construct``
    (``models/llama``, 1.6 to 2.1), the models that the guide speaks of.
    """
    plan = _plan(context)
    if plan is None or plan.failure is not None or not legacy_llama.is_llama(context):
        return
    found: dict[tuple[str, str], list[int]] = {}
    for layer in plan.layers:
        for offload in layer.swap:
            for pattern in layer.select_patterns:
                if offload.target and offload.target not in layer.select_patterns and _feeds(offload.target, pattern):
                    found.setdefault((offload.target, pattern), []).append(layer.layer)
    for (target, pattern), layers in found.items():
        shown = ", ".join(map(str, layers[:_SHOWN])) + (", ..." if len(layers) > _SHOWN else "")
        place = ("recompute_config", "select_recompute", pattern)
        params = {"target": target, "pattern": pattern, "layers": shown}
        yield Violation(("swap_config", "op_swap"), params=params, related=((place, "recomputed"),))


def _feeds(target: str, pattern: str) -> bool:
    """Whether what one pattern stands for gives its results to what another one stands for."""
    return any(_leads(target, giver) and _leads(pattern, taker) for giver, taker in _FLOW)


def _leads(pattern: str, path: str) -> bool:
    """Whether a pattern stands for a cell, or for one that it is in."""
    parts, names = pattern.split(r"\."), path.split(".")
    return len(parts) <= len(names) and all(map(_stands_for, parts, names))


def _params(problem: Diagnostic) -> dict[str, str]:
    return {"name": "", "pattern": "", **{name: str(value) for name, value in problem.message.params.items()}}


def _plan(context: CheckContext) -> RecomputePlan | None:
    """The plan, or None if the config does not tell all of it."""
    return _plan_of(context.job)


@per_job
def _plan_of(job: Job) -> RecomputePlan | None:
    context = CheckContext(job, {})
    stages = startup.stages(context)
    try:
        inputs = read_inputs(job, fewest=0)
    except MsTuneError:
        return None
    if stages is None or inputs.stage_num or inputs.start_stage or _unsure(context):
        return None
    interleave, scheduler = startup.interleaves(context), startup.scheduler(context)
    return normalize(inputs._replace(stages=stages, interleave=interleave, scheduler=scheduler))


def _unsure(context: CheckContext) -> bool:
    """Whether models read the layer count or the offset in different ways: nothing is said then."""
    model = context.model
    counted, unknown = bool(model.number("mtp_num_layers")), model.value("offset") in (None, UNKNOWN)
    return startup.is_legacy(context) and (unknown or counted) and startup.stages(context) != 1


def _blamed(context: CheckContext, text: str) -> KeyPath:
    """The value that the framework's text quotes, or else the first that is no switch."""
    given = [key for key in KEYS if not isinstance(context.get(f"{_SECTION}.{key}", default=False), bool)]
    quoted = [key for key in given if str(context.get(f"{_SECTION}.{key}")) in text]
    key = next(iter((*quoted, *given)), None)
    return (_SECTION, key) if key else (_SECTION,)


def _place(context: CheckContext, problem: Diagnostic) -> KeyPath:
    """Where the value stands that the problem is about: at its own pattern, if it has patterns."""
    if "at" in context.options:
        return tuple(str(context.options["at"]).split("."))
    params = problem.message.params
    name = str(params.get("key") or params.get("name") or "")
    key, _, rest = name.partition("[")
    if key in ("layer_swap", "op_swap"):
        return ("swap_config", key)
    if key not in KEYS:
        offset: KeyPath = ("model", "model_config", "offset")
        return offset if context.source.get(offset) is not None else (_SECTION,)
    pattern = str(params.get("pattern", rest[1:-2]))
    value = context.get(f"{_SECTION}.{key}")
    if isinstance(value, dict) and pattern in value:
        return (_SECTION, key, pattern)
    return (_SECTION, key)


# Where the patterns stand that a problem calls by the name of what they are for.
_PATTERNS: dict[str, KeyPath] = {
    "select_module": ("recompute", "select_module"),
    "exclude_op": ("recompute", "exclude_op"),
    "comm_select_module": ("recompute_comm", "select_module"),
    "op_swap": ("swap", "op_swap"),
}


def refused_at_last(context: CheckContext) -> Iterator[Violation]:
    """The framework raises while it loads the config or sets its layers, and no other check has an error to tell."""
    plan = _whole_plan(context)
    # Without a plan the config does not tell all that is needed, or needs something that is not served.
    if plan is None or plan.failure is None or context.refused():
        return
    failure = plan.failure
    error = f"{failure.exception}: {failure.text}" if failure.text else failure.exception
    section = str(context.options["section"])
    yield Violation((section,) if section in context.source.data else (), params={"error": error})


def passes(context: CheckContext) -> bool:
    """Whether the framework surely gets through to the layers; not if the config does not tell all that is needed."""
    plan = _whole_plan(context)
    return plan is not None and plan.failure is None


def accepted(context: CheckContext) -> Iterator[Violation]:
    """Something that the framework accepts although its author hardly meant it.

    The option ``traps`` says which problems of :mod:`ms_tune.layers` these are, and for each the key path to point at.
    The problem's id is also the name of the message; ``default`` where the check has one message only.
    """
    plan, traps = _whole_plan(context), context.options["traps"]
    if plan is None or plan.failure is not None or not isinstance(traps, dict):
        return
    for problem in plan.problems:
        if problem.id in traps and (problem.severity is not Severity.INFO or problem.id != PlanIssue.CELL_UNMATCHED):
            path = _place_of_problem(context, problem, tuple(str(traps[problem.id]).split(".")))
            message = "default" if len(traps) == 1 or problem.id == PlanIssue.NO_MATCH else problem.id
            yield Violation(path, message, {name: str(value) for name, value in problem.message.params.items()})


def _place_of_problem(context: CheckContext, problem: Diagnostic, usual: KeyPath) -> KeyPath:
    """Where the problem is: at its own pattern, or its own key, if it names one that is written."""
    params = problem.message.params
    key, name = str(params.get("key", "")), str(params.get("pattern", params.get("name", "")))
    within = _PATTERNS.get(key, usual)
    value = context.source.get(within)
    if isinstance(value, dict) and name in value:
        return (*within, name)
    if isinstance(value, dict) and key in value:
        return (*within, key)
    for index, entry in enumerate(value if isinstance(value, list) else ()):
        if name and isinstance(entry, dict) and entry.get("op_name") == name:
            return (*within, index)
    return within


def _whole_plan(context: CheckContext) -> LayerPlan | None:
    """The plan, or None if the config does not tell all of it."""
    try:
        return context.job.plan
    except MsTuneError:
        return None
