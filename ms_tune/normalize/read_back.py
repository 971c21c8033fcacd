"""Settings read back by the rules of the dialect that they are for, and held to what they should do, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects.draft import shown_layers
from ms_tune.dialects.megatron.arguments import command_of
from ms_tune.dialects.megatron.plan import normalize_megatron
from ms_tune.dialects.megatron.read import inputs_of
from ms_tune.dialects.megatron.recompute import EXPERTS_ACTIVATION
from ms_tune.dialects.megatron.write import without_idle
from ms_tune.dialects.operators import ATTRIBUTES, SWAP, Choices, Side, as_written, topmost
from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.errors import MsTuneError
from ms_tune.job.job import Job
from ms_tune.source.shell.read import read_launches
from ms_tune.source.yaml import parse_source
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ms_tune.dialects.layer_plan import LayerPlan, LayerSpec
    from ms_tune.normalize.convert_layers import Converted

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
        return replace(converted, problems=(*converted.problems, *problems))
    if again.failure is not None:
        what = ": ".join(filter(None, (again.failure.exception, again.failure.text)))
        note(problems, "refused", Severity.ERROR, what=what)
    else:
        merged = "convert-chunks-merged" in said
        before = _acts(plan.layers, expected, target, merged=merged)
        after = _acts(again.layers, _seen(again, side), target, merged=merged)
        _tell_differences(before, after, problems)
    return replace(converted, problems=(*converted.problems, *problems))


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
