"""Recompute and swap values that MindFormers refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ms_tune.diagnostics import Diagnostic, KeyPath, Severity
from ms_tune.dialects import PlanIssue
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.mindformers.placement import KEYS
from ms_tune.dialects.values import are_numbers, compile_segment, is_patterns, is_risky, pattern_fault
from ms_tune.errors import MsTuneError
from ms_tune.facts.models import cells_of, is_legacy, names_of

_RECOMPUTE, _SWAP = "recompute_config", "swap_config"
_COUNTS, _EXCLUDES = KEYS[:3], KEYS[3:]
# A dot between two plain characters, which is written `\.` in a regular expression.
_PLAIN_DOT = re.compile(r"(?<=\w)\.(?=\w)")


def too_long(context: CheckContext) -> Iterator[Violation]:
    """Report lists that are longer than the number of pipeline stages.

    ``check_rules._rule_recompute`` refuses a plain value; inside a dict ``LayerSetting`` fails with an
    IndexError (MindFormers 1.7 to 2.1).
    """
    stages = context.job.startup.stages or 1
    for path, counts in _lists(context, (*_COUNTS, *_EXCLUDES)):
        checked = len(path) > 2 or path[-1] in _COUNTS  # noqa: PLR2004 - (section, key) is a plain value
        if checked and len(counts) > stages:
            yield Violation(
                path,
                params={"length": len(counts), "stages": stages},
                related=((("parallel_config", "pipeline_stage"), "stages"),),
            )


def negative(context: CheckContext) -> Iterator[Violation]:
    """Report a negative number of layers: ``_alloc_recompute_layer`` counts down from it and never reaches zero."""
    startup = context.job.startup
    heard = _COUNTS[:1] if startup.is_reduced else (*_COUNTS, *_EXCLUDES)
    for path, counts in _lists(context, heard):
        if _swaps_in_core(context) and path[1] in _COUNTS:
            continue
        for index, count in enumerate(counts):
            if count < 0:
                yield Violation((*path, index))


def _swaps_in_core(context: CheckContext) -> bool:
    """Return whether an Mcore model enables swap in its own section (since 1.7)."""
    swaps = any(context.get(f"model.model_config.{name}") is True for name in names_of("swap"))
    return swaps and not is_legacy(context.source.data) and not context.job.startup.is_reduced


def plain_dot(context: CheckContext) -> Iterator[Violation]:
    r"""Report a pattern with a plain dot: patterns are split at ``\.``, so it is one name that no cell has."""
    for key in (*_COUNTS[1:], *_EXCLUDES):
        value = context.get(f"{_RECOMPUTE}.{key}")
        for index, pattern in enumerate(value if isinstance(value, (list, dict)) else ()):
            if isinstance(pattern, str) and _PLAIN_DOT.search(pattern.replace(r"\.", " ")):
                item = pattern if isinstance(value, dict) else index
                fixed = _PLAIN_DOT.sub(r"\\.", pattern)
                yield Violation((_RECOMPUTE, key, item), params={"pattern": pattern, "fixed": fixed}, at_key=True)


def _lists(context: CheckContext, keys: tuple[str, ...]) -> Iterator[tuple[KeyPath, list[int]]]:
    """Yield the lists of plain numbers, given directly or for a pattern.

    With swap, lists contain layer numbers and are skipped; excludes are still read as counts. For a model that enables
    swap in its own section, ``check_rules`` still counts lists that are given directly.
    """
    swapping = context.get("swap_config.swap") is True
    startup = context.job.startup
    for key in keys:
        if swapping and key not in _EXCLUDES:
            continue
        value = context.get(f"{_RECOMPUTE}.{key}")
        path = (_RECOMPUTE, key)
        # Excludes have no default patterns, so a plain value is not read.
        found: list[tuple[KeyPath, object]] = [] if key in _EXCLUDES else [(path, value)]
        # Values of patterns do not apply to Mcore models of 1.6.
        ids = key not in _EXCLUDES and _swaps_in_core(context)
        if isinstance(value, dict) and key != "recompute" and not startup.is_reduced and not ids:
            found = [((*path, str(pattern)), counts) for pattern, counts in value.items()]
        for here, counts in found:
            if isinstance(counts, list) and counts and all(isinstance(count, int) for count in counts):
                yield here, counts


def entries(context: CheckContext) -> Iterator[Violation]:
    """Report entries that ``TransformerSwapConfig`` refuses, whether swap is on or off."""
    if context.get("swap_config.layer_swap") is None and context.get("swap_config.op_swap") is None:
        return
    for key in ("layer_swap", "op_swap"):
        value = context.get(f"{_SWAP}.{key}")
        path: KeyPath = (_SWAP, key)
        if value is None:
            continue
        if not isinstance(value, (list, dict)):
            yield Violation(path, "not-a-list")
            continue
        wrapped: list[tuple[KeyPath, object]] = (
            [(path, value)] if isinstance(value, dict) else [((*path, i), item) for i, item in enumerate(value)]
        )
        yield from _entries(wrapped, named=key == "op_swap")


def _entries(items: list[tuple[KeyPath, object]], *, named: bool) -> Iterator[Violation]:
    groups: dict[object, list[tuple[KeyPath, dict[object, object]]]] = {}
    for path, item in items:
        if not isinstance(item, dict):
            yield Violation(path, "not-an-entry")
            continue
        # Operators without a prefetch fail only if swap is on.
        needed = ("op_name", "layers") if named else ("layers", "backward_prefetch")
        missing = next((key for key in needed if key not in item), "")
        if missing:
            yield Violation(path, "missing", {"missing": missing})
        elif named and not is_patterns(_names_of(item)):
            yield Violation((*path, "op_name"), "op-name")
        elif not _are_layers(item["layers"]):
            yield Violation((*path, "layers"), "layers")
        else:
            for name in _names_of(item) if named else [""]:
                groups.setdefault(name, []).append((path, item))
    for group in groups.values():
        first, *others = (item.get("backward_prefetch") for _, item in group)
        if any(item["layers"] is True for _, item in group) and any(other != first for other in others):
            yield Violation((*group[-1][0], "backward_prefetch"), "inconsistent")


def while_off(context: CheckContext) -> Iterator[Violation]:
    """Report valid swap lists while swap is off."""
    if any(True for _ in entries(context)):
        return
    for key in ("layer_swap", "op_swap"):
        if context.get(f"{_SWAP}.{key}"):
            yield Violation((_SWAP, key))


def _names_of(item: dict[object, object]) -> list[object]:
    names = item["op_name"]
    return names if isinstance(names, list) else [names]


def _are_layers(value: object) -> bool:
    nested = isinstance(value, list) and all(map(are_numbers, value))
    return isinstance(value, bool) or are_numbers(value) or nested


_FINDS_NOTHING = (PlanIssue.PATTERN_UNMATCHED, PlanIssue.PATTERN_CELL, PlanIssue.CELL_UNMATCHED)
_SHOWN = 8  # maximum layers in one message
# Data flow in a Llama layer; between attention and the feed-forward part are an addition and a norm.
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
    """Report that MindFormers raises or loops endlessly at one of ``steps``; ``reported`` lists other checks that cover a step."""
    plan = context.job.startup.plan
    steps = context.options["steps"]
    if plan is None or plan.failure is None or not isinstance(steps, list):
        return
    step = plan.problems[0].id.removesuffix("-rejected")
    text = plan.failure.text
    if step not in steps or (step == "core" and _FLAT_LIST not in text):
        return
    reported = context.options["reported"]
    if isinstance(reported, dict) and step in reported and context.refused(*reported[step]):
        return
    error = f"{plan.failure.exception}: {text}" if text else plan.failure.exception
    yield Violation(_find_blamed_key(context, text), params={"error": error})


def report_problem(context: CheckContext) -> Iterator[Violation]:
    """Report a setting that MindFormers accepts although it is probably a mistake.

    The option ``id`` selects the plan's problem (:class:`~ms_tune.dialects.PlanIssue`), ``at`` the key path to point
    at, if the problem does not contain it.
    """
    plan = context.job.startup.plan
    for problem in plan.problems if plan is not None else ():
        # It may be a default pattern of a setting that is off.
        is_off = problem.id == PlanIssue.PATTERN_EXCLUDED and not context.get(
            f"{_RECOMPUTE}.{problem.message.params['key']}"
        )
        if problem.id == context.options["id"] and not is_off:
            yield Violation(_place(context, problem), params=_params(problem))


def of_everything(context: CheckContext) -> Iterator[Violation]:
    """Report a pattern whose last part matches every attribute of a cell, or is an invalid expression.

    ``set_pattern_recompute`` iterates over ``dir(cell)``, where ``__class__`` is the first attribute with its own
    ``recompute``: calling it without a cell raises. Reported only where the previous part certainly matches a cell.
    """
    plan = context.job.startup.plan
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
        within = not before or any(_matches_segment(before, name) for name in cells)
        if within and r"\." not in before:
            wrong = pattern_fault(last)
            if wrong or _matches_segment(last, "__class__"):
                params = {"pattern": pattern, "error": wrong}
                yield Violation(_place_of(context, pattern), "broken" if wrong else "default", params)


def _network(context: CheckContext) -> str | None:
    """Return the network whose cells the model has, if they are known."""
    if not is_legacy(context.source.data):
        return "core"
    startup = context.job.startup
    return "legacy" if startup.is_llama else "glm" if startup.is_glm else None


def _matches_segment(segment: str, name: str) -> bool:
    return not is_risky(segment) and not pattern_fault(segment) and compile_segment(segment).fullmatch(name) is not None


def _place_of(context: CheckContext, pattern: str) -> KeyPath:
    """Return the key path of the first setting that contains a pattern."""
    for key in KEYS[1:]:
        value = context.get(f"{_RECOMPUTE}.{key}")
        if isinstance(value, dict) and pattern in value:
            return (_RECOMPUTE, key, pattern)
        if isinstance(value, list) and pattern in value:
            return (_RECOMPUTE, key, value.index(pattern))
    return (_RECOMPUTE,)


def unmatched(context: CheckContext) -> Iterator[Violation]:
    """Report a pattern without matching operator in all layers or in a cell that it applies to, if the layers are known.

    ``facts/data/trees.json`` contains the cells and operators of all models that MindFormers trains.
    """
    named = [context.get(f"{_RECOMPUTE}.{key}") for key in KEYS[1:]] + [context.get("swap_config.op_swap")]
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
    """Report swapped operators whose results go to recomputed ones: rule 2 of MindFormers' guide on memory.

    The order of cells in a layer is from ``LLamaDecodeLayer.construct`` and ``LLamaFeedForward.construct``
    (``models/llama``, 1.6 to 2.1), the models in that guide.
    """
    startup = context.job.startup
    plan = startup.plan
    if plan is None or plan.failure is not None or not startup.is_llama:
        return
    found: dict[tuple[str, str], list[int]] = {}
    for layer in plan.layers:
        for offload in layer.swap:
            target = offload.target
            for pattern in layer.select_patterns if target and target not in layer.select_patterns else ():
                if any(_matches_parent(target, giver) and _matches_parent(pattern, taker) for giver, taker in _FLOW):
                    found.setdefault((target, pattern), []).append(layer.layer)
    for (target, pattern), layers in found.items():
        shown = ", ".join(map(str, layers[:_SHOWN])) + (", ..." if len(layers) > _SHOWN else "")
        place = ("recompute_config", "select_recompute", pattern)
        params = {"target": target, "pattern": pattern, "layers": shown}
        yield Violation(("swap_config", "op_swap"), params=params, related=((place, "recomputed"),))


def _matches_parent(pattern: str, path: str) -> bool:
    """Return whether a pattern matches a cell or one of the cells that contain it."""
    parts, names = pattern.split(r"\."), path.split(".")
    return len(parts) <= len(names) and all(map(_matches_segment, parts, names))


def _params(problem: Diagnostic) -> dict[str, str]:
    return {"name": "", "pattern": "", **{name: str(value) for name, value in problem.message.params.items()}}


def _find_blamed_key(context: CheckContext, text: str) -> KeyPath:
    """Return the key whose value the framework's error quotes, otherwise the first one whose value is not a Boolean."""
    given = [key for key in KEYS if not isinstance(context.get(f"{_RECOMPUTE}.{key}", default=False), bool)]
    quoted = [key for key in given if str(context.get(f"{_RECOMPUTE}.{key}")) in text]
    key = next(iter((*quoted, *given)), None)
    return (_RECOMPUTE, key) if key else (_RECOMPUTE,)


def _place(context: CheckContext, problem: Diagnostic) -> KeyPath:
    """Return the key path of the problem's value, including its pattern if it has one."""
    if "at" in context.options:
        return tuple(str(context.options["at"]).split("."))
    params = problem.message.params
    name = str(params.get("key") or params.get("name") or "")
    key, _, rest = name.partition("[")
    if key in ("layer_swap", "op_swap"):
        return ("swap_config", key)
    if key not in KEYS:
        offset: KeyPath = ("model", "model_config", "offset")
        return offset if context.source.get(offset) is not None else (_RECOMPUTE,)
    pattern = str(params.get("pattern", rest[1:-2]))
    value = context.get(f"{_RECOMPUTE}.{key}")
    if isinstance(value, dict) and pattern in value:
        return (_RECOMPUTE, key, pattern)
    return (_RECOMPUTE, key)
