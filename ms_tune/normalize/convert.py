"""What a plan does in another dialect: its operators in the names of the target, and the settings read back by the target's rules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Severity
from ms_tune.dialects.convert_layers import Converted, convert_plan
from ms_tune.dialects.draft import conversion_problem, name_ranges
from ms_tune.dialects.megatron.arguments import command_of
from ms_tune.dialects.megatron.read import SERVED, inputs_of
from ms_tune.dialects.megatron.recompute import EXPERTS_ACTIVATION, normalize_megatron
from ms_tune.dialects.megatron.write import without_idle
from ms_tune.dialects.mindformers import read
from ms_tune.dialects.mindspeed_ms.recompute import VERSION as MINDSPEED_RELEASE
from ms_tune.dialects.operators import ATTRIBUTES, SWAP, Choices, as_written, topmost, translate
from ms_tune.enums import Dialect, LayerKind, RecomputeMode
from ms_tune.errors import MsTuneError, UnsupportedError, UsageError, closest
from ms_tune.facts.models import is_legacy, model_of
from ms_tune.facts.query import release_for, served
from ms_tune.job import Job
from ms_tune.normalize.run import normalize_recompute
from ms_tune.normalize.script import normalize_script
from ms_tune.normalize.sides import find_side, find_source_side, find_target_side, layers_with_experts, megatron_side
from ms_tune.records import Record
from ms_tune.source.shell.read import read_launches
from ms_tune.source.yaml import nest_values, source_of
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.dialects import LayerPlan, LayerSpec
    from ms_tune.dialects.operators import Side
    from ms_tune.job.script import ScriptJob
    from ms_tune.normalize.script import ProgramPlan

    Name = TypeVar("Name")

_CONVERTED = Path("converted.yaml")
# After these nothing is left that could be compared layer by layer.
_STRUCTURAL = frozenset({"convert-no-plan", "convert-order", "convert-empty"})
# What stands for a program without experts, and with, where its layers' counterparts are looked up.
_DENSE, _SPARSE = "megatron", "megatron-experts"


@dataclass(frozen=True, slots=True)
class TargetDialect:
    """A dialect and its release."""

    dialect: Dialect
    release: str


@dataclass(frozen=True, slots=True)
class ConvertedProgram:
    """One program in another dialect."""

    program: ProgramPlan  # the program, with what its layers do
    settings: Converted | None  # the settings that do the same; None if what its layers do is not known


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

    Args:
        job: The config's job.
        target: The other dialect and its release.

    Raises:
        ConfigError: The config cannot be read.
        UsageError: A release is not served.
    """
    plan = normalize_recompute(job)
    problems = list(plan.problems)
    if plan.failure is not None or not plan.layers or job.dialect is target.dialect:
        choices = as_written(plan.switched_on or plan.layers)
        if plan.layers and plan.framework_version != target.release:
            choices.lost.update(_lost_in_release(job, plan, target))
        return _write_and_check(plan, target, choices, None, problems, legacy=is_legacy(job.source.data))
    if job.dialect is Dialect.MINDFORMERS and target.dialect is Dialect.MINDFORMERS_PYNATIVE:
        plan = _with_prediction_layers(job, plan)
    return convert_translated(plan, find_source_side(job, plan, problems), target, problems)


def convert_script(script: ScriptJob, target: TargetDialect) -> tuple[ConvertedProgram, ...]:
    """The settings that do in another dialect what the programs of a script do.

    Layers that do nothing (``--noop-layers``) are no layers anywhere else: the others are counted without them.

    Args:
        script: The script.
        target: The other dialect and its release.

    Raises:
        ConfigError, UnsupportedError: As :func:`ms_tune.normalize.script.normalize_script` says.
    """
    programs = normalize_script(script)
    return tuple(ConvertedProgram(one, _convert_program(one.plan, target) if one.plan else None) for one in programs)


def _convert_program(plan: LayerPlan, target: TargetDialect) -> Converted:
    problems = list(plan.problems)
    if plan.failure is not None:
        return _write_and_check(plan, target, as_written(plan.layers), None, problems)
    idle = sum(layer.kind is LayerKind.NOOP for layer in plan.layers)
    if idle and target.dialect is not Dialect.MEGATRON:
        problems.append(conversion_problem("idle", Severity.INFO, count=idle))
    plan = without_idle(plan)
    experts = [layer.layer for layer in plan.layers if layer.kind is LayerKind.EXPERTS]
    ahead = sum(layer.kind is LayerKind.PREDICTION for layer in plan.layers)
    here = megatron_side(_SPARSE if experts else _DENSE, plan.layers, experts, ahead)
    return convert_translated(plan, here, target, problems)


def _lost_in_release(job: Job, plan: LayerPlan, target: TargetDialect) -> dict[tuple[str, str], list[int]]:
    here = find_source_side(job, plan, [])
    if here.family not in {"core", "dynamic"}:
        return {}  # legacy models are the same in all releases
    experts = layers_with_experts(here)
    there = find_side(here.family, here.model, target.release, plan.layers, experts, here.ahead)
    return translate(plan.layers, here, there).lost if there.paths else {}


def _with_prediction_layers(job: Job, plan: LayerPlan) -> LayerPlan:
    """The plan with its prediction layers, which the dynamic graph numbers: each is set as the last layer is."""
    inputs = read.read_inputs(job)
    if inputs.legacy or inputs.reduced:
        return plan
    last = (plan.switched_on or plan.layers)[-1]
    behind = [last._replace(layer=last.layer + 1 + index) for index in range(inputs.mtp_layers)]
    return plan._replace(layers=(*plan.layers, *behind), switched_on=())


def convert_translated(
    plan: LayerPlan, here: Side, target: TargetDialect, problems: list[Diagnostic], there: Side | None = None
) -> Converted:
    """The settings that do in another dialect what a plan does, in the names of the target's model.

    Every operator that a pattern finds in a layer is looked up in the layers of the target's model, and what the
    settings do there is compared layer by layer.

    Args:
        plan: The plan.
        here: The layers that its patterns are for.
        target: The other dialect and its release.
        problems: What was said before.
        there: The layers of the target's model, if they are known already.
    """
    there = there or find_target_side(here, target.dialect, target.release, plan, problems)
    return _write_and_check(plan, target, translate(plan.layers, here, there), there, problems)


def _write_and_check(  # noqa: PLR0913 - what is converted by all that makes it
    plan: LayerPlan,
    target: TargetDialect,
    choices: Choices,
    side: Side | None,
    problems: Sequence[Diagnostic],
    *,
    legacy: bool = False,
) -> Converted:
    """The settings with all that is to be told; ``side`` is None where the names are those of the plan itself."""
    converted = convert_plan(
        plan, target.dialect.value, version=target.release, choices=choices, target=side, legacy=legacy
    )
    if side is not None and converted.values:
        converted = converted._replace(values={**converted.values, **_prediction_setting(side, target)})
    found = _check_settings(plan, converted, target, choices, side)
    return converted._replace(problems=(*problems, *converted.problems, *found))


def _prediction_setting(side: Side, target: TargetDialect) -> dict[str, object]:
    """How many prediction layers there are to be, where the target's model has any or would have some if nothing were written."""
    if target.dialect in (Dialect.MINDSPEED_MS, Dialect.MEGATRON):
        return {}
    section = "model.model_config" if target.dialect is Dialect.MINDFORMERS else "model"
    data = nest_values({("use_legacy",): False, (*section.split("."), "model_type"): side.model})
    usual = model_of(source_of(data, _CONVERTED), target.dialect, target.release).mtp_layers
    return {f"{section}.num_nextn_predict_layers": side.ahead} if usual or side.ahead else {}


def _check_settings(
    plan: LayerPlan, converted: Converted, target: TargetDialect, expected: Choices, side: Side | None
) -> Iterator[Diagnostic]:
    """What the target's own rules make of the settings, where that is not what is expected."""
    told = {problem.id for problem in converted.problems}
    if told & _STRUCTURAL:
        return
    try:
        again = _read_back(converted.values, target, side)
    except MsTuneError as error:
        yield conversion_problem("refused", Severity.ERROR, what=error.message)
        return
    if again.failure is not None:
        what = ": ".join(filter(None, (again.failure.exception, again.failure.text)))
        yield conversion_problem("refused", Severity.ERROR, what=what)
        return
    merged = "convert-chunks-merged" in told
    before = _layer_acts(plan.layers, expected, target, merged=merged)
    after = _layer_acts(again.layers, _find_choices(again, side), target, merged=merged)
    yield from _tell_differences(before, after)


def _read_back(values: Mapping[str, object], target: TargetDialect, side: Side | None) -> LayerPlan:
    """The plan of a config that has these settings; what its patterns find is looked up afterwards."""
    if target.dialect is Dialect.MEGATRON:
        return without_idle(_plan_arguments(values, target.release, side))
    data = nest_values({tuple(key.split(".")): value for key, value in values.items()})
    return Job(source_of(data, _CONVERTED), dialect=target.dialect, version=target.release).plan


def _plan_arguments(values: Mapping[str, object], release: str, side: Side | None) -> LayerPlan:
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


def _find_choices(plan: LayerPlan, side: Side | None) -> Choices:
    if side is None or not side.paths:
        return as_written(plan.switched_on or plan.layers)
    choices = Choices()
    for layer in plan.layers:
        for attribute, modules in ATTRIBUTES.items():
            found = {path for pattern in getattr(layer, attribute) for path in side.find(layer.layer, pattern, modules)}
            for path in sorted(topmost(found)):
                choices.named[attribute].setdefault((path, None), []).append(layer.layer)
        for swap in layer.swap:
            found = set(side.find(layer.layer, swap.target, True)) if swap.target else {""}  # noqa: FBT003 - a callback
            for path in sorted(topmost(found)):
                choices.named[SWAP].setdefault((path, swap.prefetch), []).append(layer.layer)
    return choices


class LayerAct(Record):
    """What one layer does, in a form that can be compared."""

    cell: tuple[int, int]  # stage and chunk
    full: bool  # whether it is recomputed as a whole
    names: Mapping[str, frozenset[str]]  # names of parts by what is done to them: `select`, `comm`, `exclude`
    swaps: frozenset[tuple[str, object]]  # names and prefetches

    def describe(self, other: LayerAct | None) -> str:
        """What sets it apart from another one."""
        parts = []
        if other is None or self.cell != other.cell:
            parts.append("stage {}, chunk {}".format(*self.cell))
        if self.full:
            parts.append("full")
        for word, names in self.names.items():
            own = names - other.names[word] if other else names
            if own:
                parts.append(f"{word} {', '.join(sorted(own))}")
        moved = self.swaps - other.swaps if other else self.swaps
        if moved:
            parts.append("swap " + ", ".join(sorted(f"{name or '*'}@{prefetch}" for name, prefetch in moved)))
        return "; ".join(parts) or "-"


def _layer_acts(
    layers: Sequence[LayerSpec], choices: Choices, target: TargetDialect, *, merged: bool
) -> dict[int, LayerAct]:
    if target.dialect is Dialect.MINDSPEED_MS:  # its operators cannot be chosen
        names = [_by_layer({"*": choices.reached(one)} if "excl" not in one else {}) for one in ATTRIBUTES]
    else:
        names = [_by_layer(choices.layers(attribute)) for attribute in ATTRIBUTES]
    swaps = _by_layer(choices.named[SWAP])
    acts = {}
    for layer in layers:
        select, comm, *excludes = (by_layer.get(layer.layer, set()) for by_layer in names)
        if target.dialect is Dialect.MINDFORMERS_PYNATIVE:
            comm = {name for name in comm if not any(name.startswith(f"{module}.") for module in select)}
        acts[layer.layer] = LayerAct(
            (0, 0) if merged else (layer.stage, layer.chunk),
            layer.recompute is RecomputeMode.FULL,
            {"select": frozenset(select), "comm": frozenset(comm), "exclude": frozenset().union(*excludes)},
            frozenset(swaps.get(layer.layer, set())),
        )
    return acts


def _by_layer(groups: Mapping[Name, Iterable[int]]) -> dict[int, set[Name]]:
    found: dict[int, set[Name]] = {}
    for name, layers in groups.items():
        for layer in layers:
            found.setdefault(layer, set()).add(name)
    return found


def _tell_differences(before: Mapping[int, LayerAct], after: Mapping[int, LayerAct]) -> Iterator[Diagnostic]:
    """Layers that would not do what they do now, told together where they differ in the same way."""
    rows: dict[tuple[str, str], list[int]] = {}
    for layer, act in before.items():
        other = after.get(layer)
        # Layers that predict further tokens have no numbers in the static graph, which is told elsewhere.
        if other != act and (other is not None or layer < len(after)):
            pair = act.describe(other), other.describe(act) if other else "-"
            rows.setdefault(pair, []).append(layer)
    for (here, there), layers in rows.items():
        yield conversion_problem("differs", Severity.ERROR, layers=name_ranges(layers), here=here, there=there)
