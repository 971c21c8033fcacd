r"""Match operator patterns with the layers of the models that MindFormers trains.

Patterns are matched as in ``LayerSetting.set_pattern_recompute`` and ``set_pattern_swap``: every segment but the last
selects child cells by name, the last one selects operators and, where allowed, cells. The framework's log lines for
each layer follow from that. A layer's operators depend on the model's settings, so a pattern counts as unmatched only
if no variant of the model has a match (:mod:`ms_tune.dialects.operators`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import Failure, FrameworkStop, LayerPlan, LayerSpec, report_literals, unmatched_cells
from ms_tune.dialects.mindformers.placement import KEYS, RecomputeInputs
from ms_tune.dialects.mindformers.recompute import DEFAULT_PATTERNS, failure_problem, normalize
from ms_tune.dialects.mindformers.swap import check_prefetch, layer_swap_line
from ms_tune.dialects.operators import LayerModel, Tree, bare_model, expert_layers, layer_model
from ms_tune.dialects.values import full_match, is_patterns, split_pattern, stop_at
from ms_tune.enums import RecomputeMode
from ms_tune.facts.models import ModelConfig
from ms_tune.records import Any
from ms_tune.text import msg


def find_layer_model(facts: ModelConfig, inputs: RecomputeInputs) -> LayerModel | None:
    """Return the layers of a model if they are known, regardless of the config's patterns."""
    if inputs.legacy:
        return _legacy_model(facts, inputs.layers)
    if inputs.reduced:
        return bare_model()  # this class only supports whole layers
    if not facts.has_own_layers:
        return None
    experts = expert_layers(inputs.layers, facts.value("first_k_dense_replace"), facts.value("moe_layer_freq"))
    return layer_model(str(facts.facts.kind), inputs.version, str(facts.value("hidden_act")), experts)


def _legacy_model(facts: ModelConfig, layers: int) -> LayerModel | None:
    kind, experts = str(facts.architecture), facts.number("expert_num")
    flash, joined = (facts.value(name) is True for name in ("use_flash_attention", "qkv_concat"))
    if kind == "DeepseekV3ForCausalLM":
        known = (experts or 0) > 1 and facts.number("shared_expert_num")
        dense = expert_layers(layers, facts.value("first_k_dense_replace"), 1)
        return layer_model(kind, facts.release, "" if flash else "no-flash", dense if known else None)
    if experts not in (0, 1, None):
        return None
    if kind == "ChatGLM2ForConditionalGeneration" or (flash and not joined):
        variant = ""
    elif flash or joined:
        variant = "qkv_concat" if flash else "?"
    else:
        variant = "no-flash"
    return layer_model(kind, facts.release, variant)


_TAKE_CELLS = frozenset({"select_recompute", "op_swap"})  # keys whose patterns may match a cell
_ATTRIBUTES = {
    "select_recompute": "select_patterns",
    "select_comm_recompute": "comm_patterns",
    "select_recompute_exclude": "select_excludes",
    "select_comm_recompute_exclude": "comm_excludes",
}


@dataclass(frozen=True, slots=True)
class OperatorMatches:
    """Operators and cells that a pattern matches, by path, and the text that the framework logs for them."""

    operators: tuple[str, ...]
    cells: tuple[str, ...]
    text: str


@lru_cache(maxsize=4096)  # a thousand layers share two trees
def find(tree: Tree, pattern: str, *, matches_cells: bool, suffix: str = "") -> OperatorMatches:
    """Match a pattern in a layer (with ``matches_cells`` also cells); the framework logs each name with the suffix."""
    search = _OperatorSearch(matches_cells, suffix)
    text = search.walk(tree, split_pattern(pattern), "")
    return OperatorMatches(tuple(search.operators), tuple(search.cells), text)


@dataclass(slots=True)
class _OperatorSearch:
    matches_cells: bool
    suffix: str
    operators: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)

    def walk(self, tree: Tree, segments: Sequence[str], path: str) -> str:
        """Search below a cell; return the text for the framework's log line."""
        head, rest = segments[0], segments[1:]
        if rest:
            below = [self.walk(cell, rest, f"{path}.{name}") for name, cell in tree.cells if full_match(head, name)]
            texts = [text[1:] for text in below if text]
            return " " + ", ".join(texts) if texts else ""
        text = ""  # the framework logs only the last of several matching names
        for name in tree.operators:
            if full_match(head, name):
                self.operators.append(f"{path}.{name}"[1:])
                text = f"{path}.{name}{self.suffix}"
        for name, _ in tree.cells:
            if full_match(head, name):
                self.cells.append(f"{path}.{name}"[1:])
                if self.matches_cells:
                    text = f"{path}.{name}{self.suffix}"
        return text


def keep_matching_patterns(inputs: RecomputeInputs, plan: LayerPlan, model: LayerModel | None) -> LayerPlan:
    """Reduce the plan to the patterns that match in the model's layers; if these are unknown, add a note."""
    # The network is wrapped, where sequence pipelines may fail, only after its layers are set.
    wrapped = plan.failure is not None and inputs.sequence_splits > 1
    before = normalize(inputs._replace(sequence_splits=1)) if wrapped else plan
    stopped = find_failure(inputs, before, model) if model is not None else None
    if stopped is not None:
        return stopped
    problems = list(find_unmatched(inputs, plan, model)) if model is not None else []
    seen = match_plan(plan, model) if model is not None else None
    # Full recomputation does not depend on the operators in a layer.
    known = model if model is not None and seen is not None else bare_model()
    log = (*plan.log, *layer_lines(inputs, plan, known), *ahead_lines(inputs, plan, known))
    if seen is not None:
        layers, found = seen
        return plan._replace(
            layers=layers,
            switched_on=plan.layers if layers != plan.layers else (),
            problems=(*plan.problems, *problems),
            log=log,
            matches=found,
        )
    return plan._replace(problems=(*plan.problems, *problems, *report_literals(plan.layers)), log=log)


def find_failure(inputs: RecomputeInputs, plan: LayerPlan, model: LayerModel) -> LayerPlan | None:
    """Return the plan with its failure if the framework stops while matching patterns in the model's layers.

    A segment may be an invalid regular expression, and an operator may reject its swap's prefetch.
    """
    ahead = model.ahead if inputs.mtp_layers and not inputs.legacy and not inputs.reduced else None
    built: list[tuple[str, LayerSpec, Tree | None]] = [
        ("layer", layer, model.tree(layer.layer)) for layer in plan.layers
    ]
    built += [("mtp", layer, ahead) for layer in plan.layers[-1:]]
    for step, layer, tree in built:
        try:
            if tree is not None:
                _look_up(layer, tree, timed=inputs.version != "1.6")
        except FrameworkStop as error:
            number = layer.layer if step == "layer" else None
            problem = failure_problem(step, number, error)
            failure = Failure(error.exception, error.text, number)
            return plan._replace(formative=None, layers=(), problems=(problem, *plan.problems), failure=failure)
    return None


def _look_up(layer: LayerSpec, tree: Tree, *, timed: bool) -> None:
    """Match everything that the framework matches for one layer, in its order."""
    patterns = (*layer.select_patterns, *layer.comm_patterns, *layer.select_excludes, *layer.comm_excludes)
    prefetches = [(swap.target, swap.prefetch) for swap in layer.swap if swap.target]
    for pattern in (*patterns, *(target for target, _ in prefetches)):
        try:
            find(tree, pattern, matches_cells=True)
        except re.error as error:
            stop_at(pattern, error, timed=timed)
    for target, prefetch in prefetches:
        found = find(tree, target, matches_cells=True)
        if found.operators:
            check_prefetch(prefetch, "Primitive._offload")
        if found.cells:
            check_prefetch(prefetch)


def find_unmatched(inputs: RecomputeInputs, plan: LayerPlan, model: LayerModel) -> Iterator[Diagnostic]:
    """Report patterns that match nothing in any layer of the model, or nothing in a cell that they apply to."""
    if plan.formative is None:
        return
    for key in (*KEYS[1:3], "op_swap") if inputs.swaps.swap is True else KEYS[1:]:
        patterns: list[str] = list(plan.formative[key])
        value = None if key == "op_swap" else getattr(inputs.values, key)
        if key == "op_swap" or isinstance(value, dict) or is_patterns(value):
            for pattern in patterns:
                yield from _own_problem(plan, model, key, pattern)
        elif value:
            yield from _default_problem(plan, model, key, patterns, DEFAULT_PATTERNS[inputs.legacy].get(key, ()))


def _own_problem(plan: LayerPlan, model: LayerModel, key: str, pattern: str) -> Iterator[Diagnostic]:
    outcome = _anywhere(model, pattern, matches_cells=key in _TAKE_CELLS)
    if outcome == "operator":
        yield from _cell_problem(plan, model, key, (pattern,))
    elif outcome != "unknown":
        name = "pattern-cell" if outcome == "cell" else "pattern-unmatched"
        message = msg(f"layers.{name}", key=key, pattern=pattern, model=model.name)
        yield Diagnostic(name, Severity.WARNING, message)


def _default_problem(
    plan: LayerPlan, model: LayerModel, key: str, patterns: Sequence[str], default: Sequence[str]
) -> Iterator[Diagnostic]:
    """Report default patterns if none matches; a model has only some of them: those for experts or those without."""
    outcomes = {_anywhere(model, pattern, matches_cells=key in _TAKE_CELLS) for pattern in patterns}
    if "operator" in outcomes:
        yield from _cell_problem(plan, model, key, patterns)
    elif tuple(patterns) == tuple(default):
        message = msg("layers.pattern-unmatched-default", key=key, pattern=", ".join(patterns), model=model.name)
        yield Diagnostic("pattern-unmatched", Severity.WARNING, message)


def _cell_problem(plan: LayerPlan, model: LayerModel, key: str, patterns: Sequence[str]) -> Iterator[Diagnostic]:
    """Report the cells in which no pattern matches anything, although they apply to their layers."""
    found: dict[tuple[int, int, int], bool] = {}
    for layer in plan.layers:
        asked = [pattern for pattern in patterns if pattern in _switched_on(layer, key)]
        tree = model.tree(layer.layer)
        if asked and tree is not None:
            hit = any(_finds(tree, pattern, matches_cells=key in _TAKE_CELLS) for pattern in asked)
            found[layer.chunk, layer.stage, layer.layer] = hit
    everywhere = len(found) == sum(layer.recompute is not RecomputeMode.FULL for layer in plan.layers)
    problem = unmatched_cells(key, ", ".join(patterns), found, everywhere=everywhere)
    if problem is not None:
        yield problem


def _switched_on(layer: LayerSpec, key: str) -> Sequence[str]:
    if key == "op_swap":
        return [swap.target for swap in layer.swap]
    patterns: Sequence[str] = getattr(layer, _ATTRIBUTES[key])
    return patterns


def _anywhere(model: LayerModel, pattern: str, *, matches_cells: bool) -> str:
    """Return the best match in any layer: ``operator`` (or an equivalent), ``cell``, ``nothing``, or ``unknown``."""
    best = "nothing"
    for tree in model.every:
        try:
            found = find(tree, pattern, matches_cells=matches_cells)
        except re.error:
            return "unknown"  # reported elsewhere
        if found.operators or (matches_cells and found.cells):
            return "operator"
        if found.cells:
            best = "cell"
    return best


def _finds(tree: Tree, pattern: str, *, matches_cells: bool) -> tuple[str, ...]:
    """Return the paths in a layer that a pattern matches and whose recomputation or swap it changes."""
    try:
        found = find(tree, pattern, matches_cells=matches_cells)
    except re.error:
        return ()
    return (*found.operators, *(found.cells if matches_cells else ()))


def match_plan(plan: LayerPlan, model: LayerModel) -> tuple[tuple[LayerSpec, ...], dict[str, tuple[str, ...]]] | None:
    """Return the layers with only their matching patterns, and the matches of each; None if the model's layers are unknown."""
    trees = [model.tree(layer.layer) for layer in plan.layers]
    if plan.formative is None or None in trees:
        return None
    selected = plan.formative["select_recompute"]
    found: dict[str, dict[str, None]] = {}

    def match_patterns(patterns: Iterable[str], tree: Tree, *, matches_cells: bool | None = None) -> tuple[str, ...]:
        hits = []
        for pattern in patterns:
            cells = pattern in selected if matches_cells is None else matches_cells
            paths = _finds(tree, pattern, matches_cells=cells)
            if paths:
                found.setdefault(pattern, {}).update(dict.fromkeys(paths))
                hits.append(pattern)
        return tuple(hits)

    layers = []
    for layer, tree in zip(plan.layers, trees, strict=True):
        assert tree is not None  # noqa: S101 - checked above
        targets = match_patterns([swap.target for swap in layer.swap if swap.target], tree, matches_cells=True)
        select = match_patterns(layer.select_patterns, tree, matches_cells=True)
        comm = match_patterns(layer.comm_patterns, tree, matches_cells=False)
        mode = RecomputeMode.SELECT if select else RecomputeMode.COMM if comm else RecomputeMode.NONE
        layers.append(
            layer._replace(
                recompute=RecomputeMode.FULL if layer.recompute is RecomputeMode.FULL else mode,
                select_patterns=select,
                comm_patterns=comm,
                select_excludes=match_patterns(layer.select_excludes, tree, matches_cells=False),
                comm_excludes=match_patterns(layer.comm_excludes, tree, matches_cells=False),
                swap=tuple(one for one in layer.swap if not one.target or one.target in targets),
                overridden=match_patterns(layer.overridden, tree),
            )
        )
    return tuple(layers), {pattern: tuple(paths) for pattern, paths in found.items()}


def layer_lines(inputs: RecomputeInputs, plan: LayerPlan, model: LayerModel) -> list[str]:
    """Return the framework's log lines when it sets the layers; empty if the model is unknown."""
    if not model.kinds:
        return []
    trees = ((layer, model.tree(layer.layer)) for layer in plan.layers)
    return _lines(inputs, plan, [(layer, tree) for layer, tree in trees if tree is not None])


def ahead_lines(inputs: RecomputeInputs, plan: LayerPlan, model: LayerModel) -> list[str]:
    """Return its log lines for multi-token prediction layers: it reads the values again and sets each like the last layer.

    ``MultiTokenPredictionBlock`` in ``mindformers/parallel_core/training_graph/transformer/multi_token_prediction.py``
    (1.7 to 2.1). In such a layer the ordinary layer is a separate cell, so most patterns match nothing.
    """
    if inputs.legacy or inputs.reduced or not inputs.mtp_layers or not plan.layers or model.ahead is None:
        return []
    return [*plan.log, *_lines(inputs, plan, [(plan.layers[-1], model.ahead)] * inputs.mtp_layers)]


def _lines(inputs: RecomputeInputs, plan: LayerPlan, layers: Sequence[tuple[LayerSpec, Tree]]) -> list[str]:
    if plan.formative is None:
        return []
    lines: list[str] = []
    try:
        for layer, tree in layers:
            _log_layer(inputs, plan.formative["layer_swap"], layer, tree, lines)
    except re.error:
        return []
    return lines


def _log_layer(
    inputs: RecomputeInputs, layer_swap: Sequence[Any], layer: LayerSpec, tree: Tree, lines: list[str]
) -> None:
    number, by_id = layer.layer, inputs.swaps.swap is True
    if layer.recompute is RecomputeMode.FULL:
        if not by_id or inputs.values.recompute is not True:
            lines.append(f"Set full recompute at layer {number}")
    else:
        switch = "" if by_id or inputs.reduced else " on"
        _log_patterns(f"select recompute{switch}", number, tree, layer.select_patterns, lines)
        _log_patterns(f"select comm recompute{switch}", number, tree, layer.comm_patterns, lines)
    _log_patterns("select recompute exclude", number, tree, layer.select_excludes, lines)
    _log_patterns("select comm recompute exclude", number, tree, layer.comm_excludes, lines)
    if not by_id:
        return
    texts = []
    for swap in layer.swap:
        if not swap.target:
            lines.append(layer_swap_line(number, swap, layer_swap))
            continue
        text = find(tree, swap.target, matches_cells=True, suffix=f", value={swap.prefetch}").text
        if text:
            texts.append(text)
    if texts:
        lines.append(f"Set op_swap at layer {number}: {', '.join(texts)}")


_NOT_AN_OPERATOR = "is expected to be operation but got cell, this configuration will not be effective."
_EXPECTED: Mapping[bool, str] = {
    True: "For select recompute/comm_recompute exclude,",
    False: "For communication recompute,",
}


def _log_patterns(what: str, number: int, tree: Tree, patterns: Sequence[str], lines: list[str]) -> None:
    excludes, matches_cells = what.endswith("exclude"), what.startswith("select recompute") and "exclude" not in what
    texts = []
    for pattern in patterns:
        found = find(tree, pattern, matches_cells=matches_cells)
        if not matches_cells:
            for path in found.cells:
                shown = path if "." in path else f".{path}"
                lines.append(f"{_EXPECTED[excludes]} {shown} {_NOT_AN_OPERATOR}")
        if found.text:
            texts.append(found.text[1:])
    if texts:
        lines.append(f"Set {what} at layer {number}: {', '.join(texts)}")
