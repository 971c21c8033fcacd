"""A config in another dialect: its operators in the names of the target, and the result read back by the target's rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects.convert_layers import Converted, Naming, convert
from ms_tune.dialects.draft import shown_layers
from ms_tune.dialects.megatron.arguments import command_of
from ms_tune.dialects.megatron.read import SERVED, inputs_of
from ms_tune.dialects.megatron.recompute import EXPERTS_ACTIVATION, normalize_megatron
from ms_tune.dialects.megatron.write import DENSE_PARTS, EXPERT_PARTS, without_idle
from ms_tune.dialects.mindformers import read
from ms_tune.dialects.mindformers.operators import find
from ms_tune.dialects.mindformers_pynative import read as pynative
from ms_tune.dialects.mindspeed_ms.recompute import VERSION as MINDSPEED_RELEASE
from ms_tune.dialects.operators import (
    ATTRIBUTES,
    SWAP,
    Choices,
    Side,
    as_written,
    dynamic_model,
    layer_model,
    topmost,
    translate,
)
from ms_tune.dialects.values import full_match
from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.errors import MsTuneError, UnsupportedError, UsageError, closest
from ms_tune.facts.models import is_legacy, model_of
from ms_tune.facts.query import release_for, served
from ms_tune.facts.registries import counterpart, family_of, models
from ms_tune.job import Job
from ms_tune.normalize.run import normalize_recompute
from ms_tune.source.shell.read import read_launches
from ms_tune.source.yaml import parse_source
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from ms_tune.dialects.layer_plan import LayerPlan, LayerSpec
    from ms_tune.dialects.operators import LayerModel, Tree


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
    plan = normalize_recompute(job)
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
        converted = converted._replace(values={**converted.values, key: there.ahead})
    return _with(problems, proved(plan, converted, target, choices, there), target)


def _with(problems: Iterable[Diagnostic], converted: Converted, target: TargetDialect) -> Converted:
    return converted._replace(problems=(*problems, *converted.problems), release=target.release)


def _prediction_key(side: Side, target: TargetDialect) -> tuple[str, int]:
    """The key for the number of prediction layers, and how many the target's model has where nothing is written."""
    if target.dialect in (Dialect.MINDSPEED_MS, Dialect.MEGATRON):
        return "", 0
    data: dict[str, object] = {"model_type": side.model}
    section = "model"
    if target.dialect is Dialect.MINDFORMERS:
        data, section = {"model_config": data}, "model.model_config"
    source = parse_source(yaml.safe_dump({"use_legacy": False, "model": data}), Path("converted.yaml"))
    usual = model_of(source, target.dialect, target.release).mtp_layers
    return f"{section}.num_nextn_predict_layers", usual


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

    return side._replace(find=look)


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
    return side._replace(family="megatron")


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
    return _unknown(family, name)._replace(ahead=ahead)


def _ahead(plan: LayerPlan) -> int:
    """The layers of a plan of the dynamic graph that predict further tokens: no cell counts them."""
    return max(len(plan.layers) - sum(map(sum, plan.placement or ())), 0)


# After these nothing is left that could be compared layer by layer.
_STRUCTURAL = frozenset({"convert-no-plan", "convert-order", "convert-empty"})


@dataclass(frozen=True, slots=True)
class TargetDialect:
    """A dialect and its release."""

    dialect: Dialect
    release: str


def note(problems: list[Diagnostic], name: str, severity: Severity, /, **params: object) -> None:
    """Tell of something about a conversion."""
    problems.append(Diagnostic(f"convert-{name}", severity, msg(f"plans.convert.{name}", **params)))


def with_experts(side: Side) -> list[int]:
    """The layers with experts."""
    marks = {"mlp.experts", EXPERTS_ACTIVATION, "feed_forward.routed_experts"}
    return [layer for layer, paths in side.paths.items() if marks & paths]


def proved(
    plan: LayerPlan, converted: Converted, target: TargetDialect, expected: Choices, side: Side | None
) -> Converted:
    """The settings with what the target's own rules make of them, where that is not what is expected.

    Args:
        plan: The plan that the settings are to keep.
        converted: The settings.
        target: The dialect and release that read them.
        expected: What the layers are to do, in the target's names.
        side: The layers of the target's model; None if the names are those of the plan itself.
    """
    said = {problem.id for problem in converted.problems}
    if said & _STRUCTURAL:
        return converted
    problems: list[Diagnostic] = []
    try:
        again = _read_back(converted.values, target, side)
    except MsTuneError as error:
        note(problems, "refused", Severity.ERROR, what=error.message)
        return converted._replace(problems=(*converted.problems, *problems))
    if again.failure is not None:
        what = ": ".join(filter(None, (again.failure.exception, again.failure.text)))
        note(problems, "refused", Severity.ERROR, what=what)
    else:
        merged = "convert-chunks-merged" in said
        before = _acts(plan.layers, expected, target, merged=merged)
        after = _acts(again.layers, _seen(again, side), target, merged=merged)
        _tell_differences(before, after, problems)
    return converted._replace(problems=(*converted.problems, *problems))


def _read_back(values: Mapping[str, object], target: TargetDialect, side: Side | None) -> LayerPlan:
    """The plan of a config that has these settings; what its patterns find is looked up afterwards."""
    if target.dialect is Dialect.MEGATRON:
        return without_idle(_of_arguments(values, target.release, side))
    data: dict[str, object] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        section: dict[str, object] = data
        for part in sections:
            section = section.setdefault(part, {})  # type: ignore[assignment] # a key is a section or a value, not both
        section[name] = value
    source = parse_source(yaml.safe_dump(data, sort_keys=False, width=10**6), Path("converted.yaml"))
    return Job(source, dialect=target.dialect, version=target.release).plan


def _of_arguments(values: Mapping[str, object], release: str, side: Side | None) -> LayerPlan:
    """The plan of a program with these arguments, beside those that its model needs."""
    paths = frozenset().union(*side.paths.values()) if side else frozenset()
    model = ["--num-experts 8 --moe-grouped-gemm"] * (EXPERTS_ACTIVATION in paths)
    model += ["--multi-latent-attention"] * ("mla_up_proj" in str(values.get("--recompute-modules", "")))
    words = [name if value is True else f"{name} {value}" for name, value in values.items()]
    processes = values.get("--pipeline-model-parallel-size", 1)
    script = f"torchrun --nproc_per_node {processes} pretrain_gpt.py {' '.join((*model, *words))}\n"
    command = command_of(read_launches(Path("converted.sh"), script).launches[0], release)
    assert command is not None  # noqa: S101 - it is one of MindSpeed-LLM's programs
    return normalize_megatron(inputs_of(command))


def _seen(plan: LayerPlan, side: Side | None) -> Choices:
    """What the target's layers do: what its patterns find in them."""
    if side is None or not side.paths:
        return as_written(plan.switched_on or plan.layers)
    choices = Choices()
    for layer in plan.layers:
        for attribute, modules in ATTRIBUTES.items():
            found = {path for pattern in getattr(layer, attribute) for path in side.find(layer.layer, pattern, modules)}
            for path in topmost(found):
                choices.named[attribute].setdefault((path, None), []).append(layer.layer)
        for swap in layer.swap:
            found = set(side.find(layer.layer, swap.target, True)) if swap.target else {""}  # noqa: FBT003 - a callback
            for path in topmost(found):
                choices.named[SWAP].setdefault((path, swap.prefetch), []).append(layer.layer)
    return choices


# Stage and chunk; recompute in full; names of select, communication and exclude; names and prefetches of swap.
_Act = tuple[tuple[int, int], bool, frozenset[str], frozenset[str], frozenset[str], frozenset[tuple[str, object]]]


def _acts(layers: Sequence[LayerSpec], choices: Choices, target: TargetDialect, *, merged: bool) -> dict[int, _Act]:
    """What each layer does, in a form that can be compared."""
    names: dict[str, dict[int, set[str]]] = {attribute: {} for attribute in ATTRIBUTES}
    for attribute, by_layer in names.items():
        if target.dialect is Dialect.MINDSPEED_MS:  # its operators cannot be chosen
            by_layer.update({number: {"*"} for number in choices.reached(attribute)} if "excl" not in attribute else {})
            continue
        for name, chosen in choices.layers(attribute).items():
            for number in chosen:
                by_layer.setdefault(number, set()).add(name)
    swaps: dict[int, set[tuple[str, object]]] = {}
    for key, chosen in choices.named[SWAP].items():
        for number in chosen:
            swaps.setdefault(number, set()).add(key)
    acts = {}
    for layer in layers:
        select, comm, *excludes = (names[attribute].get(layer.layer, set()) for attribute in ATTRIBUTES)
        if target.dialect is Dialect.MINDFORMERS_PYNATIVE:
            comm = {name for name in comm if not any(name.startswith(f"{module}.") for module in select)}
        acts[layer.layer] = (
            (0, 0) if merged else (layer.stage, layer.chunk),
            layer.recompute is RecomputeMode.FULL,
            frozenset(select),
            frozenset(comm),
            frozenset().union(*excludes),
            frozenset(swaps.get(layer.layer, set())),
        )
    return acts


def _tell_differences(before: Mapping[int, _Act], after: Mapping[int, _Act], problems: list[Diagnostic]) -> None:
    """Layers that would not do what they do now, told together where they differ in the same way."""
    rows: dict[tuple[str, str], list[int]] = {}
    for layer, act in before.items():
        other = after.get(layer)
        # Layers that predict further tokens have no numbers in the static graph, which is told elsewhere.
        if other != act and (other is not None or layer < len(after)):
            rows.setdefault(_shown_pair(act, other), []).append(layer)
    for (here, there), layers in rows.items():
        note(problems, "differs", Severity.ERROR, layers=shown_layers(layers), here=here, there=there)


def _shown_pair(act: _Act, other: _Act | None) -> tuple[str, str]:
    return _shown(act, other), _shown(other, act) if other else "-"


def _shown(act: _Act, other: _Act | None) -> str:
    """What sets a layer's act apart from another one."""
    parts = []
    (stage, chunk), full, *named, swaps = act
    if other is None or act[0] != other[0]:
        parts.append(f"stage {stage}, chunk {chunk}")
    if full:
        parts.append("full")
    for word, names, others in zip(
        ("select", "comm", "exclude"), named, other[2:5] if other else ((), (), ()), strict=True
    ):
        if names - set(others):
            parts.append(f"{word} {', '.join(sorted(names - set(others)))}")
    moved = swaps - (other[5] if other else set())
    if moved:
        parts.append("swap " + ", ".join(sorted(f"{name or '*'}@{prefetch}" for name, prefetch in moved)))
    return "; ".join(parts) or "-"
