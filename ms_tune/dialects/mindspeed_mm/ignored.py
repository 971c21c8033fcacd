"""What MindSpeed-MM takes without a word and does not do, or does otherwise (26.0, 26.1; the files are named with each rule)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindspeed_mm.detect import is_tools
from ms_tune.dialects.mindspeed_mm.read import (
    FSDP2,
    GLOBAL,
    MICRO,
    MultimodalSource,
    of_scripts,
    violation_at,
    written_settings,
)
from ms_tune.errors import closest
from ms_tune.facts.mindspeed_mm import ever, read, settings, unread
from ms_tune.source.yaml import MISSING, is_same
from ms_tune.units import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext

_REPORTED = 1000
_CONTEXT_SIZE = "parallel.context_parallel_size"  # the name that Megatron has for what is two settings here
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


def find_unread_keys(context: CheckContext) -> Iterator[Violation]:
    """A key that the release neither declares nor reads: ``BaseArguments`` keeps it, and nothing asks for it."""
    release = context.version
    known = {*settings(release), *ever(), *read(release)}
    moved = {f"{section}.{name}" for section, names in _MOVED.items() for name in names} | {"parallel.pregather"}
    for number, (path, _) in enumerate(written_settings(context)):
        dotted = ".".join(path)
        if dotted in known or dotted in moved or number >= _REPORTED:
            continue
        section, name = dotted.rpartition(".")[0], path[-1]
        names = sorted(one.rpartition(".")[2] for one in settings(release) if one.rpartition(".")[0] == section)
        similar = closest(name, names)
        message = "sizes" if dotted == _CONTEXT_SIZE else "similar" if similar else "default"
        yield Violation(path, message, {"similar": similar, "section": section}, at_key=True)


def find_moved_features(context: CheckContext) -> Iterator[Violation]:
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


def find_unread_settings(context: CheckContext) -> Iterator[Violation]:
    """A setting that is declared and read nowhere, with another value than its default."""
    release = context.version
    for path, value in written_settings(context):
        dotted = ".".join(path)
        if dotted in unread(release) and value and not is_same(value, settings(release)[dotted].default):
            yield Violation(path, at_key=True)


def find_empty_window(context: CheckContext) -> Iterator[Violation]:
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


@of_scripts
def find_other_accumulation(source: MultimodalSource) -> Iterator[Violation]:
    """``GRAD_ACC_STEP`` that the batch is not made of: the scripts' own formula is GBS = MBS x GRAD_ACC_STEP x DP."""
    steps = whole_number(source.variables.get("GRAD_ACC_STEP", ""))
    data, micro, total = source.data_parallel, source.whole(MICRO, 1), source.whole(GLOBAL)
    if steps is not None and data and micro and total and total != micro * steps * data:
        product = micro * steps * data
        params = {"total": total, "steps": steps, "micro": micro, "data": data, "product": product}
        yield violation_at(source, GLOBAL, params)


@of_scripts
def find_repeated_options(source: MultimodalSource) -> Iterator[Violation]:
    """An option that stands twice with different values: the last one wins."""
    before: dict[str, list[str | None]] = {}
    for one in source.command.given:
        new = [value.text for value in one.values]
        old = before.get(one.name)
        if old is not None and new and old != new and None not in (*old, *new):
            params = {"option": one.name, "old": " ".join(map(str, old)), "new": " ".join(map(str, new))}
            yield violation_at(source, one.name, params, span=source.span_of(one.word))
        before[one.name] = new


@of_scripts
def find_unfinished_snapshot(source: MultimodalSource) -> Iterator[Violation]:
    """A memory window that ends behind the training: on the Megatron path nobody stops it, and nothing is written."""
    tools, steps = source.file("--mm-tool"), source.whole("--train-iters")
    if tools is None or steps is None or tools.get(("memory_profile", "enable")) is not True:
        return
    end = tools.get(("memory_profile", "end_step"))
    if isinstance(end, int) and end > steps:
        yield violation_at(source, "--mm-tool", {"end": end, "steps": steps, "file": tools.path.name})


@of_scripts
def find_snapshots_twice(source: MultimodalSource) -> Iterator[Violation]:
    """Snapshots at out of memory beside a memory window, which clears the history that they would hold (torch_npu)."""
    found = source.file("--mm-tool")
    on = found is not None and found.get(("memory_profile", "enable")) is True
    if on and source.variables.get("OOM_SNAPSHOT_ENABLE", "0") not in ("0", ""):
        yield violation_at(source, "--mm-tool")


@of_scripts
def find_checkpoint_between_turns(source: MultimodalSource) -> Iterator[Violation]:
    """A checkpoint between two turns of an encoder that is offloaded meanwhile (``pretrain_sora.py``)."""
    model, steps = source.file("--mm-model"), source.whole("--save-interval")
    interval = model.get(("encoder_offload_interval",)) if model is not None else None
    if model is None or not isinstance(interval, int) or interval < 1:
        return
    if steps and source.has("--save") and steps % interval:
        yield violation_at(source, "--save-interval", {"file": model.path.name, "steps": steps, "interval": interval})


@of_scripts
def find_recompute_twice(source: MultimodalSource) -> Iterator[Violation]:
    """Megatron's recompute beside that of FSDP2's YAML (``transformers/base_model.py``, and MindSpeed-MM's page about FSDP2)."""
    config = source.file(FSDP2)
    if config is not None and source.has("--use-torch-fsdp2") and config.get(("recompute_modules",)):
        for option in ("--recompute-granularity", "--recompute-activations"):
            if source.has(option):
                yield violation_at(source, option, {"file": config.path.name, "option": option})
