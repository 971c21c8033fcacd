"""Checks of MindSpeed-MM's FSDP2 YAML and ``tools.json`` (26.0, 26.1; the files are named with each rule)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.errors import closest
from ms_tune.facts.mindspeed_mm import OWN_TOOLS, SECTIONS, ever, is_tools, read, settings, unread
from ms_tune.lint.checks.values import is_number
from ms_tune.source.yaml import MISSING, is_same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.facts.mindspeed_mm import MultimodalSetting

_REPORTED = 1000
_SIZES = "parallel.context_parallel_size"  # the name that Megatron has for what is two settings here
# What 26.0 read in the section of the model, or of parallelism, and later releases read in `features`.
_MOVED = {
    "parallel": ("recompute", "recompute_plan"),
    "model": (
        *(
            "recompute",
            "recompute_plan",
            "loss_cfg",
            "enable_chunk_loss",
            "chunkloss_plan",
            "enable_activation_offload",
        ),
        *("activation_offload_plan", "enable_chunk_mbs", "chunkmbs_plan", "enable_dynamic_chunk_loss"),
    ),
}


def unknown(context: CheckContext) -> Iterator[Violation]:
    """A key that the release neither declares nor reads: ``BaseArguments`` keeps it, and nothing asks for it."""
    release = _release(context)
    known = {*settings(release), *ever(), *read(release)}
    moved = {f"{section}.{name}" for section, names in _MOVED.items() for name in names} | {"parallel.pregather"}
    for number, (path, _) in enumerate(_written(context)):
        dotted = ".".join(path)
        if dotted in known or dotted in moved or number >= _REPORTED:
            continue
        section, name = dotted.rpartition(".")[0], path[-1]
        names = sorted(one.rpartition(".")[2] for one in settings(release) if one.rpartition(".")[0] == section)
        similar = closest(name, names)
        message = "sizes" if dotted == _SIZES else "similar" if similar else "default"
        yield Violation(path, message, {"similar": similar, "section": section}, at_key=True)


def moved(context: CheckContext) -> Iterator[Violation]:
    """A feature that is turned on where the release does not look (``FeaturesApplier`` of ``features/apply_features.py``)."""
    if context.version == "26.0":
        return
    for section, names in _MOVED.items():
        for name in names:
            value = context.source.get((section, name), MISSING)
            if value is not MISSING and value:
                other = context.source.get(("features", name), MISSING)
                params = {"section": section, "name": name}
                yield Violation((section, name), "twice" if other is not MISSING else "default", params, at_key=True)


def unused(context: CheckContext) -> Iterator[Violation]:
    """A setting that is declared and read nowhere, with another value than its default."""
    release = _release(context)
    for path, value in _written(context):
        dotted = ".".join(path)
        if dotted in unread(release) and value and not is_same(value, settings(release)[dotted].default):
            yield Violation(path, at_key=True)


def choices(context: CheckContext) -> Iterator[Violation]:
    """A value that is none of those that the class lists, which pydantic refuses."""
    for path, value, setting in _declared(context):
        if not setting.choices or (value is None and "null" in setting.types):
            continue
        if not any(is_same(value, one) for one in setting.choices):
            similar = closest(str(value), [str(one) for one in setting.choices])
            params = {"choices": ", ".join(map(str, setting.choices)), "similar": similar}
            yield Violation(path, "similar" if similar else "default", params)


def types(context: CheckContext) -> Iterator[Violation]:
    """A value that pydantic cannot make into the declared type."""
    for path, value, setting in _declared(context):
        if setting.types and not setting.choices and not any(_fits(value, kind) for kind in setting.types):
            found = "null" if value is None else type(value).__name__
            if value is None and setting.default is None:
                continue  # what is declared as a text and is None all the same
            yield Violation(path, params={"wanted": " | ".join(setting.types), "found": found})


def numbers(context: CheckContext) -> Iterator[Violation]:
    """Numbers that ``TrainingArguments`` and ``ParallelArguments`` refuse themselves (``model_post_init``)."""
    lr = _number(context, "training.lr", 5e-5)
    for name in ("lr_min", "lr_start"):
        low = _number(context, f"training.{name}", 0.0)
        if lr is not None and low is not None and lr < low:
            yield Violation(("training", name), "rate", {"name": name, "low": low, "rate": lr})
    share = _number(context, "training.mem_fraction_static", 0.8)
    if share is not None and not 0 < share <= 1:
        yield Violation(("training", "mem_fraction_static"), "share", {"given": share})
    for name in ("val_interval", "manual_gc_interval"):
        value = _number(context, f"training.{name}", 0)
        if value is not None and value < 0:
            yield Violation(("training", name), params={"name": name, "given": value})
    tensor = _number(context, "parallel.tensor_parallel_size", 1)
    if tensor is not None and tensor != 1:
        yield Violation(("parallel", "tensor_parallel_size"), "tensor", {"given": tensor})
    cut = (_number(context, "parallel.ring_attention_size", 1) or 1) * (
        _number(context, "parallel.ulysses_parallel_size", 1) or 1
    )
    shards = _number(context, "parallel.fully_shard_parallel_size", 0)
    if shards and shards < cut:
        yield Violation(("parallel", "fully_shard_parallel_size"), "shards", {"given": shards, "cut": cut})


def window(context: CheckContext) -> Iterator[Violation]:
    """A window of the profilers that holds no step: ``end_step`` has to come behind ``start_step``.

    ``mindspeed_mm/tools/mem_profiler.py`` dumps at ``end_step`` and never again; ``profiler.py`` takes the difference for the
    number of steps.
    """
    at: KeyPath = () if is_tools(context.source.data) else ("tools",)
    for path, switch in (
        ((*at, "memory_profile"), (*at, "memory_profile")),
        ((*at, "profile", "static_param"), (*at, "profile")),
    ):
        start, end = (context.source.get((*path, name)) for name in ("start_step", "end_step"))
        on = context.source.get((*switch, "enable")) is True
        if on and isinstance(start, int) and isinstance(end, int) and end <= start:
            yield Violation((*path, "end_step"), params={"start": start, "end": end})


def profile_type(context: CheckContext) -> Iterator[Violation]:
    """Kinds and levels of profiling that ``tools/profiler.py`` refuses; FSDP2's own has the static kind only, on or off."""
    tools = is_tools(context.source.data)
    at: KeyPath = () if tools else ("tools",)
    kind = context.source.get((*at, "profile", "profile_type"), MISSING)
    kinds = ("static", "dynamic") if tools else ("static",)
    on = context.source.get((*at, "profile", "enable")) is True
    if kind is not MISSING and kind not in kinds and (on or not tools):
        yield Violation((*at, "profile", "profile_type"), params={"given": kind, "choices": ", ".join(kinds)})
    for name, listed in _LISTED.items():
        path = (*at, "profile", "static_param", name)
        given = context.source.get(path, MISSING)
        if given is not MISSING and given not in listed and (on or not tools):
            yield Violation(path, params={"given": given, "choices": ", ".join(listed)})


_LISTED = {"level": ("level0", "level1", "level2"), "aic_metrics_type": ("PipeUtilization", "ArithmeticUtilization")}


def missing_in_tools(context: CheckContext) -> Iterator[Violation]:
    """A key that the readers of ``tools.json`` ask for without a default: ``ConfigReader`` raises an AttributeError.

    ``memory_profile.mem_info`` since 2.2, ``profile.static_param.analyse_flag`` since 26.0.
    """
    if not is_tools(context.source.data):
        return
    own = context.source.path.absolute().as_posix().endswith(OWN_TOOLS)
    for path in (("memory_profile", "mem_info"), ("profile", "static_param", "analyse_flag")):
        section = context.source.get(path[:-1])
        if own and path[-1] == "analyse_flag":
            continue  # the release's own file, of one before 26.0
        if isinstance(section, dict) and path[-1] not in section:
            yield Violation(path, params={"section": ".".join(path[:-1]), "name": path[-1]}, at_key=True)


def skips_without_offload(context: CheckContext) -> Iterator[Violation]:
    """``model.skip_*_recompute`` keeps its bookkeeping in what activation offload sets up (``async_offload.py``)."""
    for name in ("skip_flash_attn_recompute", "skip_gdn_recompute", "skip_kda_recompute"):
        if context.get(f"model.{name}") is True and context.get("features.enable_activation_offload") is not True:
            yield Violation(("model", name), params={"name": name})


def both_losses(context: CheckContext) -> Iterator[Violation]:
    """Both kinds of a loss in chunks: the fixed one wins (``FeaturesApplier.apply_chunkloss``)."""
    if context.get("features.enable_chunk_loss") is True and context.get("features.enable_dynamic_chunk_loss") is True:
        yield Violation(("features", "enable_dynamic_chunk_loss"))


def broadcast_without_load(context: CheckContext) -> Iterator[Violation]:
    """Weights that one rank is to load and hand on, and none to load (``fsdp/train/trainer.py``)."""
    told = (
        context.get("training.load_rank0_and_broadcast") is True
        and context.get("training.init_model_with_meta_device") is True
    )
    if told and context.get("training.load") is None:
        yield Violation(("training", "load_rank0_and_broadcast"))


def _release(context: CheckContext) -> str:
    return context.version


def _written(context: CheckContext) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every key of the sections whose keys are declared, with its path; what stands below an unknown one is left out."""
    for section in SECTIONS:
        yield from _below((section,), context.source.data.get(section))


def _below(path: tuple[str, ...], values: object) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in values.items() if isinstance(values, dict) else ():
        here = (*path, str(key))
        yield here, value
        dotted = ".".join(here)
        if any(one.startswith(f"{dotted}.") for one in ever()):
            yield from _below(here, value)


def _declared(context: CheckContext) -> Iterator[tuple[tuple[str, ...], object, MultimodalSetting]]:
    release = _release(context)
    model = (((("model", str(key)), value)) for key, value in context.mapping("model").items())
    for path, value in (*_written(context), *model):
        setting = settings(release).get(".".join(path))
        if setting is not None:
            yield path, value, setting


def _fits(value: object, kind: str) -> bool:
    """Whether pydantic takes a value for a type, as freely as it does by default."""
    if kind == "null":
        return value is None
    if kind == "bool":
        return (
            isinstance(value, bool)
            or value in (0, 1)
            or str(value).lower() in ("true", "false", "yes", "no", "on", "off", "0", "1")
        )
    if kind in ("int", "float"):
        return isinstance(value, (int, float)) or (isinstance(value, str) and is_number(value))
    if kind == "str":
        return isinstance(value, str)
    return isinstance(value, dict if kind == "dict" else list)


def _number(context: CheckContext, dotted: str, default: float) -> float | None:
    """A number as pydantic reads it; None where there is none."""
    value = context.get(dotted, default)
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    return float(value) if is_number(str(value)) else None
