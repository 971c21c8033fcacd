"""How the job is split, its batch and its layers' lists: what is computed of several keys together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_tune.diagnostics import Severity
from ms_tune.dialects.layer_plan import PlanIssue
from ms_tune.facts.models import CORE_SWAP, facts_of, names_of
from ms_tune.normalize.convert import convert_job, target_of
from ms_tune.workflows.migrate.draft import is_off, why

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.convert_layers import Converted
    from ms_tune.text import Message
    from ms_tune.workflows.migrate.draft import MigrationDraft

_LARGEST = 1 << 48
_GENERATED, _MASK = "BlendedMegatronDatasetDataLoader", "create_compressed_eod_mask"
_WAYS = ("data_parallel", "model_parallel", "context_parallel", "pipeline_stage")
FULLY_SHARDED_SINCE_TP = (
    "2.1"  # ParallelismConfig.__post_init__: tensor parallelism without sequence parallelism is refused
)

_MODEL = ("model", "model_config")
# Keys that decide what layers do, each with the key of the dynamic graph that says most of it.
_LAYERS: dict[KeyPath, tuple[str, ...]] = {
    ("recompute_config", "recompute"): ("recompute", "mode"),
    ("recompute_config", "select_recompute"): ("recompute", "mode"),
    ("recompute_config", "select_recompute_exclude"): ("recompute", "exclude_op"),
    ("recompute_config", "select_comm_recompute"): ("recompute_comm", "select_module"),
    ("recompute_config", "select_comm_recompute_exclude"): ("recompute", "exclude_op"),
    ("parallel_config", "pipeline_stage"): ("parallelism", "pipeline_parallel"),
    (*_MODEL, "pp_interleave_num"): ("parallelism", "pipeline_parallel_interleave_num"),
    (*_MODEL, "offset"): ("parallelism", "pipeline_parallel_layers_per_stage"),
    (*_MODEL, "num_hidden_layers"): ("model", "num_hidden_layers"),
}
_PLACES = tuple(path for path in _LAYERS if path[0] == "model")


def apply_split(draft: MigrationDraft, *, served: bool) -> None:
    """Everything that more than one key decides.

    Args:
        draft: The migration.
        served: Whether the dynamic graph has a network for the model: its layers are left alone where not.
    """
    if served:
        _pipeline_served(draft)
    _batch(draft)
    _steps(draft)
    _sharding(draft)
    _sequence(draft)
    _clipping(draft)
    _mask(draft)
    _columns(draft)
    if served:
        _layers(draft)


def count(draft: MigrationDraft, dotted: str, default: int = 1) -> int | None:
    """A number above zero; None where there is something else."""
    value = draft.get(dotted, default)
    return value if type(value) is int and 0 < value < _LARGEST else None


def ways(draft: MigrationDraft) -> dict[str, int] | None:
    """Over how many ranks the job is split in each direction; None where that is not told by numbers."""
    if draft.get("use_parallel", default=False) is not True:
        return dict.fromkeys(_WAYS, 1)
    found = {name: count(draft, f"parallel_config.{name}") for name in _WAYS}
    known = {name: number for name, number in found.items() if number is not None}
    return known if len(known) == len(found) else None


def global_batch(draft: MigrationDraft) -> tuple[int, int] | None:
    """Samples of a micro-batch of one rank, and of a step of the job.

    ``_check_global_batch_size_for_auto_parallel`` of ``trainer/base_trainer.py`` (1.9): micro-batches count in a pipeline only,
    accumulation without one only.
    """
    split = ways(draft)
    size, interleaved = count(draft, "runner_config.batch_size"), count(draft, "micro_batch_interleave_num")
    if split is None or size is None or interleaved is None:
        return None
    more = count(
        draft,
        "parallel_config.micro_batch_num"
        if split["pipeline_stage"] > 1
        else "runner_config.gradient_accumulation_steps",
    )
    return None if more is None else (size, size * interleaved * more * split["data_parallel"])


def _pipeline_served(draft: MigrationDraft) -> None:
    """A network that the dynamic graph cannot cut into stages stands in the way of a pipeline."""
    stages = count(draft, "parallel_config.pipeline_stage")
    facts = facts_of(draft.target, kind=draft.model.facts.kind)
    if stages != 1 and draft.get("use_parallel", default=False) and "dynamic" in facts.modes and not facts.stages:
        draft.drop(("parallel_config", "pipeline_stage"), why("no-stages", model=facts.kind), blocks=True)


def _batch(draft: MigrationDraft) -> None:
    found = global_batch(draft)
    keys = (
        *("runner_config.batch_size", "runner_config.gradient_accumulation_steps", "parallel_config.micro_batch_num"),
        *("micro_batch_interleave_num", "parallel_config.data_parallel"),
    )
    if found is None:
        for key in keys:
            draft.ask(tuple(key.split(".")), why("batch"), ("training",))
        return
    local, whole = found
    draft.translate(("runner_config", "batch_size"), ("training", "local_batch_size"), local)
    target = ("training", "global_batch_size")
    draft.values[target] = whole
    piped = (ways(draft) or {}).get("pipeline_stage", 1) > 1
    idle = "runner_config.gradient_accumulation_steps" if piped else "parallel_config.micro_batch_num"
    for key in keys[1:]:
        path = tuple(key.split("."))
        if key == idle:
            draft.default(path, why("batch-idle"))
        elif key == "micro_batch_interleave_num" and draft.get(key) not in (None, 1):
            draft.translate(path, target, whole, why("interleaved-batches"))
        else:
            draft.translate(path, target, whole, why("global-batch", batch=whole))
    draft.note(target, why("global-batch-note", data=(ways(draft) or {}).get("data_parallel", 1)))


def _steps(draft: MigrationDraft) -> None:
    """The steps of a job: as many as its data make, which a generated data set tells by its size."""
    found, epochs = global_batch(draft), count(draft, "runner_config.epochs")
    stop = draft.get("runner_config.stop_step", 0)
    sizes: Any = draft.get("train_dataset.data_loader.sizes")
    target, path = ("training", "steps"), ("runner_config", "epochs")
    samples = sizes[0] if isinstance(sizes, list) and sizes and type(sizes[0]) is int else 0
    if found is None or epochs is None or samples < found[1] or type(stop) is not int:
        draft.ask(path, why("steps", epochs=draft.get("runner_config.epochs", 1)), target)
        if not draft.has(path):
            draft.note(target, why("steps", epochs=1))
        draft.ask(("runner_config", "stop_step"), why("stop-step"), target)
        return
    steps = samples // found[1] * epochs
    steps = min(steps, stop) if stop > 0 else steps
    draft.translate(path, target, steps, why("steps-of", samples=samples, batch=found[1], epochs=epochs))
    draft.note(target, why("steps-of", samples=samples, batch=found[1], epochs=epochs))
    draft.translate(("runner_config", "stop_step"), target, steps) if stop > 0 else draft.default(
        ("runner_config", "stop_step"), why("off")
    )


def _sharding(draft: MigrationDraft) -> None:
    """Which data-parallel ranks share weights and optimizer state: those of the parallel optimizer, or none.

    ``_compute_data_parallel_size`` of ``pynative/trainer/trainer.py``: below zero all, else so many, and the rest holds copies.
    """
    path = ("parallel", "enable_parallel_optimizer")
    most_path = ("parallel", "parallel_optimizer_config", "optimizer_weight_shard_size")
    other = ("parallel", "optimizer_weight_shard_size")
    target = ("parallelism", "data_parallel_shard")
    shares, split = draft.get("parallel.enable_parallel_optimizer", default=False), ways(draft)
    if shares is not True or split is None:
        draft.translate(path, target, 1, why("not-sharded"))
        for one in (most_path, other):
            draft.default(one, why("not-sharded"))
        draft.note(target, why("not-sharded"))
        return
    most: Any = draft.source.get(most_path, draft.source.get(other, -1))
    data = split["data_parallel"]
    limited = type(most) is int and 0 < most < data
    if limited and data % most:
        draft.ask(most_path, why("shard-size", size=most, data=data), target)
    value = most if limited and not data % most else -1
    draft.translate(path, target, value, why("sharded"))
    for one in (most_path, other):
        draft.translate(one, target, value, why("sharded"))
    if value == -1:
        draft.note(target, why("sharded"))


def _sequence(draft: MigrationDraft) -> None:
    path, target = ("parallel_config", "use_seq_parallel"), ("parallelism", "sequence_parallel")
    wanted, tensor = (
        draft.get("parallel_config.use_seq_parallel", default=False),
        (ways(draft) or {}).get("model_parallel", 1),
    )
    if wanted is not True and tensor > 1 and draft.target >= FULLY_SHARDED_SINCE_TP:
        draft.translate(path, target, value=True, reason=why("sequence"))
        draft.add(target, value=True, reason=why("sequence"))
        if draft.has(path):
            draft.note(target, why("sequence"))
    elif draft.has(path):
        draft.translate(path, target, wanted)


def _clipping(draft: MigrationDraft) -> None:
    """Whether gradients are clipped: off if nothing is said in the static graph, on in the dynamic one."""
    path, norm = ("runner_wrapper", "use_clip_grad"), ("runner_wrapper", "max_grad_norm")
    target = ("training", "max_norm")
    most: Any = draft.get("runner_wrapper.max_grad_norm", 1.0)
    # A `runner_wrapper` that is empty or not there at all has clipping on (`WrapperConfig` of `tools/register/template.py`).
    clips = draft.get("runner_wrapper.use_clip_grad", default=not draft.get("runner_wrapper"))
    number = isinstance(most, (int, float)) and not isinstance(most, bool)
    if clips is True and number:
        draft.translate(path, target, float(most), why("clip"))
        draft.translate(norm, target, float(most))
    elif clips:  # a text is a yes, too, and a norm that is no number clips by nobody knows what
        for one in (path, norm):
            draft.ask(one, why("type", key=".".join(target)), target)
    else:
        draft.translate(path, target, 0.0, why("no-clip"))
        draft.default(norm, why("no-clip"))
        draft.note(target, why("no-clip"))


def _layers(draft: MigrationDraft) -> None:
    """Placement, recompute and swap, by what each layer does (:mod:`ms_tune.normalize.convert`)."""
    converted = convert_job(draft.job, target_of(f"mindformers-pynative@{draft.target}"))
    errors = [one for one in converted.problems if one.severity is Severity.ERROR]
    if not converted.values:
        reason = errors[0].message if errors else why("layers")
        for path in _LAYERS:
            draft.ask(path, reason, ("recompute",), blocks=path[0] == "model" and bool(errors))
        draft.note(("recompute",), reason)
    for dotted, value in converted.values.items():
        if value is not None or dotted == "recompute.mode":
            draft.values[tuple(dotted.split("."))] = value
    doubts = _doubts(converted)
    for path, to in _LAYERS.items():
        for key in draft.under(*path):  # lists by pattern are keys below it
            _lead(draft, key, to, errors, known=bool(converted.values), doubt=doubts.get(path[-1]))
    for path in _swap_keys(draft):
        dropped = next((one.message for one in converted.problems if one.id == PlanIssue.SWAP_DROPPED), None)
        if path[0] == "swap_config" and dropped is not None:
            draft.default(path, dropped)
            continue
        switch = path[-1] in names_of("swap")
        doubt = doubts.get("op_swap") if "op_swap" in path else None
        doubt = doubt or (None if switch else doubts.get("swap"))
        _lead(draft, path, ("swap", "enable"), errors, known=bool(converted.values), doubt=doubt)
    for one in errors:
        draft.note(("recompute",), one.message)


def _swap_keys(draft: MigrationDraft) -> Iterator[KeyPath]:
    """The keys of swap: of a section of their own for legacy models, in the model's settings for the others."""
    yield from draft.under("swap_config")
    for path in draft.under(*_MODEL):
        if len(path) > len(_MODEL) and draft.model.facts.field_names.get(str(path[2]), str(path[2])) in CORE_SWAP:
            yield path


def _doubts(converted: Converted) -> dict[str | int, Message]:
    """What is not quite the same there, by the key that it is about."""
    found: dict[str | int, Message] = {
        "select_comm_recompute": why("comm"),
        "select_comm_recompute_exclude": why("comm-kept"),
    }
    for one in converted.problems:
        if one.id == PlanIssue.CONVERTED_WIDER:
            found.setdefault(str(one.message.params["key"]), one.message)
        elif one.id == PlanIssue.CONVERTED_PREFETCH:
            found["swap"] = one.message
        elif one.id in {PlanIssue.CONVERTED_STAND_IN, PlanIssue.CONVERTED_NO_TREES}:
            for path in _LAYERS:
                if path[0] == "recompute_config" and path[-1] != "recompute":
                    found.setdefault(path[-1], one.message)
    return found


def _lead(  # noqa: PLR0913 - a key by all that decides about it
    draft: MigrationDraft,
    path: tuple[str | int, ...],
    to: tuple[str, ...],
    errors: list[Any],
    *,
    known: bool,
    doubt: Message | None = None,
) -> None:
    """A key of the layers, whose value the plan has made; where it could not be said there, or not quite, it is asked."""
    if not known or not draft.has(path):
        return
    off = is_off(draft.source.get(path))
    if to in draft.values:
        lost = bool(errors) and not off and path not in _PLACES
        if lost:
            draft.ask(path, errors[0].message, to)
        elif doubt is not None and not off:
            draft.ask(path, doubt, to)
        else:
            draft.translate(path, to, draft.values[to])
    elif off or (to[0] == "swap" and not errors):
        draft.default(path, why("off"))
    else:
        draft.ask(path, errors[0].message if errors else why("layers"), to[:1])


def _mask(draft: MigrationDraft) -> None:
    """Whether attention ends with each document: no, if nothing is said; the dynamic graph's trainer stops without the key.

    ``dataset/dataloader/blended_megatron_dataloader.py``, ``hf_dataloader.py`` (1.9); ``pynative/trainer/utils.py`` (2.0).
    """
    kind = draft.get("train_dataset.data_loader.type")
    place = ("config", _MASK) if kind == _GENERATED else (_MASK,)
    if kind in (_GENERATED, "HFDataLoader") and not draft.has(("train_dataset", "data_loader", *place)):
        draft.add(("train_dataset", "dataloader", *place), value=False, reason=why("unset", key=_MASK))


def _columns(draft: MigrationDraft) -> None:
    """The columns of a generated data set, which the static graph knows by its switches.

    ``train_dataset.input_columns``, or else what ``_get_columns_with_strategy`` finds (``trainer/base_trainer.py``, 1.9).
    """
    if draft.get("train_dataset.input_columns") or draft.get("train_dataset.data_loader.column_names"):
        return
    if draft.get("train_dataset.data_loader.type") != _GENERATED:
        return
    columns = ["input_ids", "labels", "loss_mask", "position_ids"]
    if draft.get(f"train_dataset.data_loader.config.{_MASK}") is True:
        columns.append("actual_seq_len")
    elif draft.get("train_dataset.data_loader.config.create_attention_mask") is True:
        columns.append("attention_mask")
    draft.add(("train_dataset", "dataloader", "column_names"), columns, why("columns-made"))
