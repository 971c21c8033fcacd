"""Convert a plan to another dialect, or to lists that are written out: find the target's names, then check the settings by its rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ms_tune.diagnostics import Diagnostic, KeyPath, Severity
from ms_tune.dialects import LayerPlan, LayerSpec
from ms_tune.dialects.convert_layers import Converted, convert_plan
from ms_tune.dialects.draft import conversion_problem, name_ranges
from ms_tune.dialects.megatron.arguments import command_of
from ms_tune.dialects.megatron.read import SERVED, inputs_of
from ms_tune.dialects.megatron.recompute import EXPERTS_ACTIVATION, normalize_megatron
from ms_tune.dialects.megatron.write import without_idle
from ms_tune.dialects.mindformers import read
from ms_tune.dialects.mindspeed_ms.recompute import VERSION as MINDSPEED_RELEASE
from ms_tune.dialects.operators import ATTRIBUTES, SWAP, Choices, Side, copy_choices, topmost, translate
from ms_tune.enums import WITH_LAYERS, ChangeKind, Dialect, LayerKind, RecomputeMode
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError, UsageError, closest
from ms_tune.facts.models import is_legacy, model_of
from ms_tune.facts.query import release_for, served
from ms_tune.job import Job
from ms_tune.normalize.run import normalize_recompute
from ms_tune.normalize.script import ProgramPlan, normalize_script
from ms_tune.normalize.sides import find_side, find_source_side, find_target_side, layers_with_experts, megatron_side
from ms_tune.records import Record
from ms_tune.source.edit import EditRefusedError, ValueChange, same_data
from ms_tune.source.edit_values import loses_comments, refuse_shared, with_values
from ms_tune.source.shell.read import read_launches
from ms_tune.source.yaml import Values, nest_values, parse_source, source_of
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.job.script import ScriptJob

    Reading: TypeAlias = tuple[LayerPlan, Values]

Name = TypeVar("Name")

_CONVERTED = Path("converted.yaml")
# After these problems there is nothing to compare layer by layer.
_STRUCTURAL = frozenset({"convert-no-plan", "convert-order", "convert-empty"})
# Names under which the layers of a program without and with experts are looked up.
_DENSE, _SPARSE = "megatron", "megatron-experts"


@dataclass(frozen=True, slots=True)
class TargetDialect:
    """A dialect and its release."""

    dialect: Dialect
    release: str


@dataclass(frozen=True, slots=True)
class ConvertedProgram:
    """One program converted to another dialect."""

    program: ProgramPlan  # the program with its layer plan
    settings: Converted | None  # the equivalent settings; None if its layer plan is unknown


def target_of(text: str) -> TargetDialect:
    """Return the dialect and release of ``DIALECT`` or ``DIALECT@RELEASE``; without a release, the default one."""
    name, at, version = text.partition("@")
    known = [dialect.value for dialect in WITH_LAYERS]
    if name not in known:
        choices, similar = ", ".join(known), closest(name, known)
        hint = msg("config.not-found.similar", similar=similar) if similar else None
        raise UsageError(msg("normalize.no-such-dialect", value=name, choices=choices), hint)
    dialect = Dialect(name)
    return TargetDialect(dialect, release_of(dialect, version if at else None))


def release_of(dialect: Dialect, version: str | None = None) -> str:
    """Return the release that a version belongs to; without one the newest, or the static graph's or MindSpeed-LLM's default."""
    newest = served(dialect)[-1] if dialect not in (Dialect.MINDFORMERS, Dialect.MEGATRON) else None
    release = release_for(dialect, newest if version is None else version).version
    if dialect is Dialect.MEGATRON and release not in SERVED:
        raise UnsupportedError(msg("megatron_layers.release", release=release, served=", ".join(SERVED)))
    return MINDSPEED_RELEASE if dialect is Dialect.MINDSPEED_MS else release


def convert_job(job: Job, target: TargetDialect) -> Converted:
    """Convert a config's recompute and swap settings to another dialect; the config's own problems come first."""
    plan = normalize_recompute(job)
    problems = list(plan.problems)
    if plan.failure is not None or not plan.layers or job.dialect is target.dialect:
        choices = copy_choices(plan.switched_on or plan.layers)
        if plan.layers and plan.framework_version != target.release:
            choices.untranslated.update(_find_unsupported(job, plan, target))
        return _write_and_check(plan, target, choices, None, problems, legacy=is_legacy(job.source.data))
    if job.dialect is Dialect.MINDFORMERS and target.dialect is Dialect.MINDFORMERS_PYNATIVE:
        plan = _with_prediction_layers(job, plan)
    return convert_translated(plan, find_source_side(job, plan, problems), target, problems)


def convert_script(script: ScriptJob, target: TargetDialect) -> tuple[ConvertedProgram, ...]:
    """Convert the settings of all programs of a script to another dialect.

    Layers without computation (``--noop-layers``) do not exist in other dialects: the others are numbered without them.
    """
    programs = normalize_script(script)
    return tuple(ConvertedProgram(one, _convert_program(one.plan, target) if one.plan else None) for one in programs)


def _convert_program(plan: LayerPlan, target: TargetDialect) -> Converted:
    problems = list(plan.problems)
    if plan.failure is not None:
        return _write_and_check(plan, target, copy_choices(plan.layers), None, problems)
    idle = sum(layer.kind is LayerKind.NOOP for layer in plan.layers)
    if idle and target.dialect is not Dialect.MEGATRON:
        problems.append(conversion_problem("idle", Severity.INFO, count=idle))
    plan = without_idle(plan)
    experts = [layer.layer for layer in plan.layers if layer.kind is LayerKind.EXPERTS]
    ahead = sum(layer.kind is LayerKind.PREDICTION for layer in plan.layers)
    here = megatron_side(_SPARSE if experts else _DENSE, plan.layers, experts, ahead)
    return convert_translated(plan, here, target, problems)


def _find_unsupported(job: Job, plan: LayerPlan, target: TargetDialect) -> dict[tuple[str, str], list[int]]:
    here = find_source_side(job, plan, [])
    if here.family not in {"core", "dynamic"}:
        return {}  # legacy models are the same in all releases
    experts = layers_with_experts(here)
    there = find_side(here.family, here.model, target.release, plan.layers, experts, here.ahead)
    return translate(plan.layers, here, there).untranslated if there.paths else {}


def _with_prediction_layers(job: Job, plan: LayerPlan) -> LayerPlan:
    """Return the plan with prediction layers (which the dynamic graph numbers), each set like the last layer."""
    inputs = read.read_inputs(job)
    if inputs.legacy or inputs.reduced:
        return plan
    last = (plan.switched_on or plan.layers)[-1]
    ahead = [last._replace(layer=last.layer + 1 + index) for index in range(inputs.mtp_layers)]
    return plan._replace(layers=(*plan.layers, *ahead), switched_on=())


def convert_translated(
    plan: LayerPlan, here: Side, target: TargetDialect, problems: list[Diagnostic], there: Side | None = None
) -> Converted:
    """Convert a plan's settings to another dialect, using the names of the target's model.

    Every operator that a pattern matches in a layer is looked up in the target model's layers, and the effect of the
    new settings is compared layer by layer.
    """
    there = there or find_target_side(here, target.dialect, target.release, plan, problems)
    return _write_and_check(plan, target, translate(plan.layers, here, there), there, problems)


def _write_and_check(  # noqa: PLR0913 - all inputs of a conversion
    plan: LayerPlan,
    target: TargetDialect,
    choices: Choices,
    side: Side | None,
    problems: Sequence[Diagnostic],
    *,
    legacy: bool = False,
) -> Converted:
    """Return the settings with all problems; ``side`` is None if the target uses the plan's own names."""
    converted = convert_plan(
        plan, target.dialect.value, version=target.release, choices=choices, target=side, legacy=legacy
    )
    if side is not None and converted.values:
        converted = converted._replace(values={**converted.values, **_prediction_setting(side, target)})
    found = _check_settings(plan, converted, target, choices, side)
    return converted._replace(problems=(*problems, *converted.problems, *found))


def _prediction_setting(side: Side, target: TargetDialect) -> dict[str, object]:
    """Return the number of prediction layers, if the model has any now or would have some by default."""
    if target.dialect in (Dialect.MINDSPEED_MS, Dialect.MEGATRON):
        return {}
    section = "model.model_config" if target.dialect is Dialect.MINDFORMERS else "model"
    data = nest_values({("use_legacy",): False, (*section.split("."), "model_type"): side.model})
    usual = model_of(source_of(data, _CONVERTED), target.dialect, target.release).mtp_layers
    return {f"{section}.num_nextn_predict_layers": side.ahead} if usual or side.ahead else {}


def _check_settings(
    plan: LayerPlan, converted: Converted, target: TargetDialect, expected: Choices, side: Side | None
) -> Iterator[Diagnostic]:
    """Yield problems where the settings, read by the target's rules, do not have the expected effect."""
    reported = {problem.id for problem in converted.problems}
    if reported & _STRUCTURAL:
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
    merged = "convert-chunks-merged" in reported
    before = _layer_acts(plan.layers, expected, target, merged=merged)
    after = _layer_acts(again.layers, _find_choices(again, side), target, merged=merged)
    yield from _report_differences(before, after)


def _read_back(values: Mapping[str, object], target: TargetDialect, side: Side | None) -> LayerPlan:
    """Return the plan of a config with these settings; its patterns are not resolved yet."""
    if target.dialect is Dialect.MEGATRON:
        return without_idle(_plan_arguments(values, target.release, side))
    data = nest_values({tuple(key.split(".")): value for key, value in values.items()})
    return Job(source_of(data, _CONVERTED), dialect=target.dialect, version=target.release).plan


def _plan_arguments(values: Mapping[str, object], release: str, side: Side | None) -> LayerPlan:
    """Return the plan of a program with these arguments and those that its model requires."""
    paths = frozenset().union(*side.paths.values()) if side else frozenset()
    model = ["--num-experts 8 --moe-grouped-gemm"] * (EXPERTS_ACTIVATION in paths)
    model += ["--multi-latent-attention"] * ("mla_up_proj" in str(values.get("--recompute-modules", "")))
    words = [name if value is True else f"{name} {value}" for name, value in values.items()]
    processes = values.get("--pipeline-model-parallel-size", 1)
    script = f"torchrun --nproc_per_node {processes} pretrain_gpt.py {' '.join((*model, *words))}\n"
    command = command_of(read_launches(Path("converted.sh"), script).launches[0], release)
    assert command is not None  # noqa: S101 - it is a MindSpeed-LLM program
    return normalize_megatron(inputs_of(command))


def _find_choices(plan: LayerPlan, side: Side | None) -> Choices:
    if side is None or not side.paths:
        return copy_choices(plan.switched_on or plan.layers)
    choices = Choices()
    for layer in plan.layers:
        for attribute, modules in ATTRIBUTES.items():
            found = {path for pattern in getattr(layer, attribute) for path in side.find(layer.layer, pattern, modules)}
            for path in sorted(topmost(found)):
                choices.layers_by_name[attribute].setdefault((path, None), []).append(layer.layer)
        for swap in layer.swap:
            found = set(side.find(layer.layer, swap.target, True)) if swap.target else {""}  # noqa: FBT003 - a callback
            for path in sorted(topmost(found)):
                choices.layers_by_name[SWAP].setdefault((path, swap.prefetch), []).append(layer.layer)
    return choices


class LayerAct(Record):
    """The effect of the settings on one layer, in comparable form."""

    cell: tuple[int, int]  # stage and chunk
    full: bool  # whether the whole layer is recomputed
    names: Mapping[str, frozenset[str]]  # names of operators or modules by kind: `select`, `comm`, `exclude`
    swaps: frozenset[tuple[str, object]]  # names and prefetches

    def describe(self, other: LayerAct | None) -> str:
        """Return a text of the differences from another layer."""
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
    if target.dialect is Dialect.MINDSPEED_MS:  # its operators cannot be selected
        names = [_by_layer({"*": choices.reached(one)} if "excl" not in one else {}) for one in ATTRIBUTES]
    else:
        names = [_by_layer(choices.layers(attribute)) for attribute in ATTRIBUTES]
    swaps = _by_layer(choices.layers_by_name[SWAP])
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


def _report_differences(before: Mapping[int, LayerAct], after: Mapping[int, LayerAct]) -> Iterator[Diagnostic]:
    """Yield one problem per group of layers whose behaviour would change in the same way."""
    rows: dict[tuple[str, str], list[int]] = {}
    for layer, act in before.items():
        other = after.get(layer)
        # Prediction layers have no numbers in the static graph; that is reported elsewhere.
        if other != act and (other is not None or layer < len(after)):
            pair = act.describe(other), other.describe(act) if other else "-"
            rows.setdefault(pair, []).append(layer)
    for (here, there), layers in rows.items():
        yield conversion_problem("differs", Severity.ERROR, layers=name_ranges(layers), here=here, there=there)


class ExpandedConfig(Record):
    """A config with its lists in explicit form."""

    text: str  # the whole text
    change_count: int  # the number of changed values
    left: tuple[KeyPath, ...] = ()  # values that stay unchanged because they contain comments
    # Explicit values for settings in a `base_config`, which stay unchanged because other configs may use that file: the
    # key path, the value, the file and its line.
    elsewhere: tuple[tuple[KeyPath, object, Path, int], ...] = ()


def expand_lists(job: Job) -> ExpandedConfig:
    """Return a config with every list of layers in explicit form."""
    source = job.source
    read: Callable[[Job], Reading] = job.part("write").explicit_lists
    plan, wanted = read(job)
    if plan.failure is not None or plan.formative is None:
        raise UsageError(msg("normalize.not-written", framework=msg(f"normalize.framework.{job.dialect.value}")))
    elsewhere = tuple(
        (path, value, file.path, file.nearest(path).value.line)
        for path, value in wanted.items()
        if (file := source.find_file(path)) is not source
    )
    here = {path: value for path, value in wanted.items() if source.position(path) is not None}
    left = tuple(path for path, value in here.items() if loses_comments(source, path, value))
    here = {path: value for path, value in here.items() if path not in left}
    text = with_values(source, here)
    if here:
        _prove_same(job, text, (plan, here), read, {*left, *(path for path, *_ in elsewhere)})
    return ExpandedConfig(text, len(here), left, elsewhere)


def _prove_same(
    job: Job, text: str, reading: Reading, read: Callable[[Job], Reading], left: Collection[KeyPath]
) -> None:
    """Raise an error unless the text has the wanted values (except ``left``), no other change, and the same plan."""
    plan, wanted = reading
    source = job.source
    try:
        again = Job(
            parse_source(text, source.path).replace(model_config=source.model_config),
            dialect=job.dialect,
            version=job.version,
            layers=job.layers,
        )
        result = again.source
        expected: object = source.data
        for path, value in wanted.items():
            expected = ValueChange(ChangeKind.SET_VALUE, path, value).applied(expected)
    except (ConfigError, EditRefusedError) as error:
        raise UsageError(msg("normalize.write-unproven")) from error
    if not same_data(result.data, expected):
        refuse_shared(source, next(iter(wanted)))
    found, more = read(again)
    if more.keys() - set(left) or (found.placement, found.layers) != (plan.placement, plan.layers):
        raise UsageError(msg("normalize.write-unproven"))
