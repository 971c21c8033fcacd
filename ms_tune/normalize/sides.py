"""Find the model layers on both sides of a conversion: the job's own, and those of the target's matching model."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import LayerPlan, LayerSpec
from ms_tune.dialects.draft import conversion_problem
from ms_tune.dialects.megatron.recompute import EXPERTS_ACTIVATION
from ms_tune.dialects.megatron.write import DENSE_PARTS, EXPERT_PARTS
from ms_tune.dialects.mindformers import read
from ms_tune.dialects.mindformers.operators import find, find_layer_model
from ms_tune.dialects.mindformers_pynative import read as pynative
from ms_tune.dialects.operators import ATTRIBUTES, SWAP, LayerModel, Side, Tree, dynamic_model, layer_model
from ms_tune.dialects.values import full_match
from ms_tune.enums import Dialect
from ms_tune.facts.models import counterpart, family_of, models
from ms_tune.job import Job


def find_source_side(job: Job, plan: LayerPlan, problems: list[Diagnostic]) -> Side:
    """Return the layers of the job's model; if it is unknown, those of one with the same names, with a problem."""
    if job.dialect is Dialect.MINDSPEED_MS:
        return _unknown_side("mindspeed")
    if job.dialect is Dialect.MINDFORMERS_PYNATIVE:
        # Prediction layers are not part of the placement.
        ahead = max(len(plan.layers) - sum(map(sum, plan.placement or ())), 0)
        paths = pynative.find_modules(job)
        if paths is not None:
            return _side_by_paths(
                str(job.model.facts.kind), {one: frozenset(path) for one, path in paths.items()}, ahead
            )
        name = models("dynamic")[0]
        _report_stand_in(plan, name, problems)
        return _or_itself(find_side("dynamic", name, plan.framework_version, plan.layers, (), ahead))
    inputs = read.read_inputs(job)
    model = find_layer_model(job.model, inputs)
    if model is not None and model.kinds:
        return _side_by_trees(model, plan.layers, 0 if inputs.legacy else len(plan.layers) - inputs.layers)
    family = family_of(model.name) if model and model.name else "legacy" if inputs.legacy else "core"
    known = (layer_model(name, plan.framework_version, variant) for name in models(family) for variant in ("", "silu"))
    stand_in = next((one for one in known if one is not None and one.kinds), None)
    if stand_in is None:
        return _unknown_side(family)
    _report_stand_in(plan, stand_in.name, problems)
    return _or_itself(_side_by_trees(stand_in, plan.layers))


def find_target_side(here: Side, dialect: Dialect, release: str, plan: LayerPlan, problems: list[Diagnostic]) -> Side:
    """Return the layers of the matching model in the target, and report the model that was used."""
    experts = layers_with_experts(here)
    if dialect is Dialect.MINDSPEED_MS:
        return _unknown_side("mindspeed")
    if dialect is Dialect.MEGATRON:
        return megatron_side(here.model, plan.layers, experts, here.ahead)
    family = "core" if dialect is Dialect.MINDFORMERS else "dynamic"
    name = counterpart(here.model, family)
    side = find_side(family, name, release, plan.layers, experts, here.ahead)
    if names_operators(plan) and not side.paths:
        problems.append(conversion_problem("no-trees", Severity.WARNING, model=name, release=release))
    elif names_operators(plan) and name != here.model:
        problems.append(conversion_problem("counterpart", Severity.INFO, model=name, release=release))
    return side


def find_side(  # noqa: PLR0913, PLR0917 - all properties of a model
    family: str, name: str, release: str, layers: Sequence[LayerSpec], experts: Container[int], ahead: int
) -> Side:
    """Return the layers of a model by its name.

    ``ahead`` is the number of last layers that are prediction layers.
    """
    usual = len(layers) - ahead
    kinds = tuple(layer in experts for layer in range(usual))
    if family == "core":
        model = layer_model(name, release, "silu", kinds)
        if model is not None and model.kinds:
            return _side_by_trees(model, layers, ahead)
    else:
        model = dynamic_model(name, release, kinds)
        if model is not None:
            paths = {tree: frozenset(tree.paths()) for tree in (*model.kinds, model.ahead) if tree is not None}
            trees = [model.tree(layer) if layer < usual else model.ahead for layer in range(len(layers))]
            known = {layer: paths[tree] for layer, tree in enumerate(trees) if tree is not None}
            return _side_by_paths(name, known, ahead)
    return _unknown_side(family, name, ahead)


def megatron_side(model: str, layers: Sequence[LayerSpec], experts: Container[int], ahead: int) -> Side:
    """Return the layers of a MindSpeed-LLM program, as the parts that it can recompute."""
    usual = len(layers) - ahead
    # Prediction layers are like the last layer.
    kinds = [min(layer, usual - 1) in experts for layer in range(len(layers))]
    parts = {layer: EXPERT_PARTS if sparse else DENSE_PARTS for layer, sparse in enumerate(kinds)}
    return _side_by_paths(model, parts, ahead)._replace(family="megatron")


def layers_with_experts(side: Side) -> list[int]:
    """Return the numbers of the layers with experts."""
    marks = {"mlp.experts", EXPERTS_ACTIVATION, "feed_forward.routed_experts"}
    return [layer for layer, paths in side.paths.items() if marks & paths]


def names_operators(plan: LayerPlan) -> bool:
    """Return whether any layer recomputes or swaps single operators."""
    return any(getattr(layer, key) for layer in plan.layers for key in (*ATTRIBUTES, SWAP))


def _report_stand_in(plan: LayerPlan, name: str, problems: list[Diagnostic]) -> None:
    if names_operators(plan):
        problems.append(conversion_problem("stand-in", Severity.WARNING, model=name))


def _or_itself(side: Side) -> Side:
    """Return a side on which an unmatched pattern represents itself, because the real model may have a match."""

    def look(layer: int, pattern: str, modules: bool) -> Sequence[str]:  # noqa: FBT001 - a callback
        try:
            return tuple(side.find(layer, pattern, modules)) or (pattern,)
        except re.error:
            return (pattern,)

    return side._replace(find=look)


def _side_by_trees(model: LayerModel, layers: Sequence[LayerSpec], ahead: int = 0) -> Side:
    usual = len(layers) - ahead
    trees = {layer.layer: model.tree(layer.layer) if layer.layer < usual else model.ahead for layer in layers}

    @cache
    def list_paths(tree: Tree) -> frozenset[str]:
        return frozenset(tree.paths())

    def look(layer: int, pattern: str, modules: bool) -> Iterator[str]:  # noqa: FBT001 - a callback
        tree = trees.get(layer)
        if tree is not None:
            found = find(tree, pattern, matches_cells=modules)
            yield from found.operators
            yield from found.cells if modules else ()

    known = {layer: list_paths(tree) for layer, tree in trees.items() if tree is not None}
    return Side(family_of(model.name), model.name, known, look, ahead)


def _side_by_paths(name: str, paths: Mapping[int, frozenset[str]], ahead: int) -> Side:
    def look(layer: int, pattern: str, modules: bool) -> Sequence[str]:  # noqa: FBT001 - a callback
        found = [path for path in paths.get(layer, ()) if full_match(pattern, path)]
        # Communication operators exist only when the model is split.
        return found or ([] if modules else [pattern])

    shared = {one: one for one in paths.values()}  # one object per kind of layer
    return Side("dynamic", name, {layer: shared[one] for layer, one in paths.items()}, look, ahead)


def _unknown_side(family: str, name: str = "", ahead: int = 0) -> Side:
    return Side(family, name, {}, lambda _layer, pattern, _modules: (pattern,), ahead)
