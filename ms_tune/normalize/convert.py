"""A config in another dialect: its operators in the names of the target, and the result read back by the target's rules."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects.megatron.read import SERVED
from ms_tune.dialects.megatron.write import DENSE_PARTS, EXPERT_PARTS
from ms_tune.dialects.mindformers import read
from ms_tune.dialects.mindformers.operators import find
from ms_tune.dialects.mindformers_pynative import read as pynative
from ms_tune.dialects.mindspeed_ms.plan import VERSION as MINDSPEED_RELEASE
from ms_tune.dialects.operators import ATTRIBUTES, SWAP, Side, as_written, dynamic_model, layer_model, translate
from ms_tune.dialects.values import full_match
from ms_tune.enums import Dialect
from ms_tune.errors import UnsupportedError, UsageError, closest
from ms_tune.facts.models import is_legacy, model_of
from ms_tune.facts.registries import counterpart, family_of, models
from ms_tune.facts.releases import release_for, served
from ms_tune.normalize.convert_layers import Converted, Naming, convert
from ms_tune.normalize.read_back import TargetDialect, note, proved, with_experts
from ms_tune.normalize.run import normalize
from ms_tune.source.yaml import parse_source
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from ms_tune.dialects.layer_plan import LayerPlan, LayerSpec
    from ms_tune.dialects.operators import LayerModel, Tree
    from ms_tune.job.job import Job


def target_of(text: str) -> TargetDialect:
    """The dialect and the release in ``DIALECT`` or ``DIALECT@RELEASE``; the newest release but for the static graph's.

    Raises:
        UsageError: There is no such dialect.
        UnsupportedError: The release is not served.
    """
    name, at, version = text.partition("@")
    if name not in {dialect.value for dialect in Dialect}:
        choices = ", ".join(dialect.value for dialect in Dialect)
        similar = closest(name, (dialect.value for dialect in Dialect))
        hint = msg("config.not-found.similar", similar=similar) if similar else None
        raise UsageError(msg("normalize.no-such-dialect", value=name, choices=choices), hint)
    dialect = Dialect(name)
    return TargetDialect(dialect, release_of(dialect, version if at else None))


def release_of(dialect: Dialect, version: str | None = None) -> str:
    """The release of a dialect that a version belongs to; without one the newest, or the static graph's or MindSpeed-LLM's default.

    Raises:
        UnsupportedError: It is not served.
    """
    newest = served(dialect)[-1] if dialect not in (Dialect.MINDFORMERS, Dialect.MEGATRON) else None
    release = release_for(dialect, newest if version is None else version).version
    if dialect is Dialect.MEGATRON and release not in SERVED:
        raise UnsupportedError(msg("megatron_layers.release", release=release, served=", ".join(SERVED)))
    return MINDSPEED_RELEASE if dialect is Dialect.MINDSPEED_MS else release


def convert_job(job: Job, target: TargetDialect) -> Converted:
    """The settings that do in another dialect what a config does, with the config's own problems before the others.

    Every operator that a pattern finds in a layer is looked up in the layers of the target's model, and what the
    settings do there is compared layer by layer.

    Args:
        job: The config's job.
        target: The other dialect and its release.

    Raises:
        ConfigError: The config cannot be read.
        UsageError: A release is not served.
    """
    plan = normalize(job)
    if plan.failure is not None or not plan.layers or job.dialect is target.dialect:
        choices = as_written(plan.switched_on or plan.layers)
        if plan.layers and plan.framework_version != target.release:
            choices.lost.update(_gone(side_in(job, plan, []), plan, target))
        naming = Naming(choices, legacy=is_legacy(job.source.data))
        converted = convert(plan, target.dialect.value, version=target.release, naming=naming)
        return _with(plan.problems, proved(plan, converted, target, choices, None), target)
    problems = list(plan.problems)
    if job.dialect is Dialect.MINDFORMERS and target.dialect is Dialect.MINDFORMERS_PYNATIVE:
        plan = _with_prediction(job, plan)
    return convert_named(plan, side_in(job, plan, problems), target, problems)


def _gone(here: Side, plan: LayerPlan, target: TargetDialect) -> dict[tuple[str, str], list[int]]:
    """Operators that the same model has no longer, or not yet, in another release."""
    if here.family not in {"core", "dynamic"}:
        return {}  # legacy models are the same in all releases
    there = side_of(here.family, here.model, target.release, plan.layers, with_experts(here), here.ahead)
    return translate(plan.layers, here, there).lost if there.paths else {}


def _with_prediction(job: Job, plan: LayerPlan) -> LayerPlan:
    """The plan with its prediction layers, which the dynamic graph numbers: each is set as the last layer is."""
    inputs = read.read_inputs(job)
    if inputs.legacy or inputs.reduced:
        return plan
    last = (plan.switched_on or plan.layers)[-1]
    behind = [last._replace(layer=last.layer + 1 + index) for index in range(inputs.mtp_layers)]
    return plan._replace(layers=(*plan.layers, *behind), switched_on=())


def convert_named(
    plan: LayerPlan, here: Side, target: TargetDialect, problems: list[Diagnostic], there: Side | None = None
) -> Converted:
    """The settings that do in another dialect what a plan does.

    Args:
        plan: The plan.
        here: The layers that its patterns are for.
        target: The other dialect and its release.
        problems: What was said before.
        there: The layers of the target's model, if they are known already.
    """
    there = there or _target_side(here, target, plan, problems)
    choices = translate(plan.layers, here, there)
    naming = Naming(choices, there, legacy=False, ahead=there.ahead)
    converted = convert(plan, target.dialect.value, version=target.release, naming=naming)
    key, usual = _prediction_key(there, target)
    if key and converted.values and (usual or there.ahead):
        converted = replace(converted, values={**converted.values, key: there.ahead})
    return _with(problems, proved(plan, converted, target, choices, there), target)


def _with(problems: Iterable[Diagnostic], converted: Converted, target: TargetDialect) -> Converted:
    return replace(converted, problems=(*problems, *converted.problems), release=target.release)


def _prediction_key(side: Side, target: TargetDialect) -> tuple[str, int]:
    """The key for the number of prediction layers, and how many the target's model has where nothing is written."""
    if target.dialect in (Dialect.MINDSPEED_MS, Dialect.MEGATRON):
        return "", 0
    data: dict[str, object] = {"model_type": side.model}
    section = "model"
    if target.dialect is Dialect.MINDFORMERS:
        data, section = {"model_config": data}, "model.model_config"
    source = parse_source(yaml.safe_dump({"use_legacy": False, "model": data}), Path("converted.yaml"))
    usual = model_of(source, target.dialect, target.release).number("mtp_num_layers")
    return f"{section}.num_nextn_predict_layers", usual or 0


def side_in(job: Job, plan: LayerPlan, problems: list[Diagnostic]) -> Side:
    """The layers of the job's own model, or of one with the same names where it is not known."""
    if job.dialect is Dialect.MINDSPEED_MS:
        return _unknown("mindspeed", "")
    if job.dialect is Dialect.MINDFORMERS_PYNATIVE:
        paths = pynative.known_modules(job)
        if paths is None:
            name = models("dynamic")[0]
            _tell_stand_in(plan, name, problems)
            return _or_itself(side_of("dynamic", name, plan.framework_version, plan.layers, (), _ahead(plan)))
        return _by_paths(
            str(job.model.facts.kind), {layer: frozenset(found) for layer, found in paths.items()}, _ahead(plan)
        )
    inputs = read.read_inputs(job)
    model = read.known_layers(job.model, inputs)
    if model is None or not model.kinds:
        family = family_of(model.name) if model and model.name else "legacy" if inputs.legacy else "core"
        known = (
            layer_model(name, plan.framework_version, variant) for name in models(family) for variant in ("", "silu")
        )
        model = next((one for one in known if one is not None and one.kinds), None)
        if model is None:
            return _unknown(family, "")
        _tell_stand_in(plan, model.name, problems)
        return _or_itself(_static_side(model, plan.layers))
    return _static_side(model, plan.layers, len(plan.layers) - inputs.layers if not inputs.legacy else 0)


def _or_itself(side: Side) -> Side:
    """The side, where a pattern that finds nothing stands for itself: the model is another one, so it may find something."""

    def look(layer: int, pattern: str, modules: bool) -> Sequence[str]:  # noqa: FBT001 - a callback
        try:
            return tuple(side.find(layer, pattern, modules)) or (pattern,)
        except re.error:
            return (pattern,)

    return replace(side, find=look)


def _tell_stand_in(plan: LayerPlan, name: str, problems: list[Diagnostic]) -> None:
    if _names_operators(plan):
        note(problems, "stand-in", Severity.WARNING, model=name)


def _static_side(model: LayerModel, layers: Sequence[LayerSpec], ahead: int = 0) -> Side:
    usual = len(layers) - ahead
    trees = {layer.layer: model.tree(layer.layer) if layer.layer < usual else model.ahead for layer in layers}

    @cache
    def paths(tree: Tree) -> frozenset[str]:
        return frozenset(tree.paths())

    def look(layer: int, pattern: str, modules: bool) -> Iterator[str]:  # noqa: FBT001 - a callback
        tree = trees.get(layer)
        if tree is not None:
            found = find(tree, pattern, takes_cells=modules)
            yield from found.operators
            yield from found.cells if modules else ()

    known = {layer: paths(tree) for layer, tree in trees.items() if tree is not None}
    return Side(family_of(model.name), model.name, known, look, ahead)


def _by_paths(name: str, paths: Mapping[int, frozenset[str]], ahead: int) -> Side:
    def look(layer: int, pattern: str, modules: bool) -> Sequence[str]:  # noqa: FBT001 - a callback
        found = [path for path in paths.get(layer, ()) if full_match(pattern, path)]
        # Communication operators are there only once the model is split.
        return found or ([] if modules else [pattern])

    shared = {found: found for found in paths.values()}  # one object for each kind of layer
    return Side("dynamic", name, {layer: shared[found] for layer, found in paths.items()}, look, ahead)


def _target_side(here: Side, target: TargetDialect, plan: LayerPlan, problems: list[Diagnostic]) -> Side:
    """The layers of the model that has the same ones in the target."""
    if target.dialect is Dialect.MINDSPEED_MS:
        return _unknown("mindspeed", "")
    if target.dialect is Dialect.MEGATRON:
        return megatron_side(here.model, plan.layers, with_experts(here), here.ahead)
    family = "core" if target.dialect is Dialect.MINDFORMERS else "dynamic"
    name = counterpart(here.model, family)
    side = side_of(family, name, target.release, plan.layers, with_experts(here), here.ahead)
    if _names_operators(plan):
        if not side.paths:
            note(problems, "no-trees", Severity.WARNING, model=name, release=target.release)
        elif name != here.model:
            note(problems, "counterpart", Severity.INFO, model=name, release=target.release)
    return side


def megatron_side(model: str, layers: Sequence[LayerSpec], experts: Container[int], ahead: int) -> Side:
    """The layers of one of MindSpeed-LLM's programs, by the parts that they can recompute."""
    usual = len(layers) - ahead
    last = bool(layers) and usual - 1 in experts
    kinds = [layer in experts if layer < usual else last for layer in range(len(layers))]
    side = _by_paths(model, {layer: EXPERT_PARTS if kind else DENSE_PARTS for layer, kind in enumerate(kinds)}, ahead)
    return replace(side, family="megatron")


def _unknown(family: str, name: str) -> Side:
    return Side(family, name, {}, lambda _layer, pattern, _modules: (pattern,))


def _names_operators(plan: LayerPlan) -> bool:
    return any(getattr(layer, key) for layer in plan.layers for key in (*ATTRIBUTES, SWAP))


def side_of(  # noqa: PLR0913, PLR0917 - a model by all that makes it
    family: str, name: str, release: str, layers: Sequence[LayerSpec], experts: Container[int], ahead: int
) -> Side:
    """The layers of a model by its name.

    Args:
        family: ``core`` or ``dynamic``.
        name: The model.
        release: The release of MindFormers.
        layers: The layers there are.
        experts: Those with experts.
        ahead: How many of the last ones predict further tokens.
    """
    usual = len(layers) - ahead
    kinds = tuple(layer in experts for layer in range(usual))
    if family == "core":
        model = layer_model(name, release, "silu", kinds)
        if model is not None and model.kinds:
            return _static_side(model, layers, ahead)
    else:
        model = dynamic_model(name, release, kinds)
        if model is not None:
            paths = {tree: frozenset(tree.paths()) for tree in (*model.kinds, model.ahead) if tree is not None}
            trees = [model.tree(layer) if layer < usual else model.ahead for layer in range(len(layers))]
            known = {layer: paths[tree] for layer, tree in enumerate(trees) if tree is not None}
            return _by_paths(name, known, ahead)
    return replace(_unknown(family, name), ahead=ahead)


def _ahead(plan: LayerPlan) -> int:
    """The layers of a plan of the dynamic graph that predict further tokens: no cell counts them."""
    return max(len(plan.layers) - sum(map(sum, plan.placement or ())), 0)
