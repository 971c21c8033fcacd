"""Migrate a config of MindFormers' static graph: first values that depend on several keys, then the model, then the table."""

from __future__ import annotations

from typing import Any

from ms_tune.facts.migration import callback_row
from ms_tune.workflows.migrate.draft import MigrationDraft, apply_row, apply_table, require_sequence_parallel, why
from ms_tune.workflows.migrate.model import (
    apply_defaults,
    apply_layers,
    apply_model,
    ask_model,
    find_missing_folder,
    is_served,
    refuse_model,
)

_LARGEST = 1 << 48
_GENERATED, _MASK = "BlendedMegatronDatasetDataLoader", "create_compressed_eod_mask"
_ACCUMULATION, _MICRO_BATCHES = "runner_config.gradient_accumulation_steps", "parallel_config.micro_batch_num"
_DEGREES = ("data_parallel", "model_parallel", "context_parallel", "pipeline_stage")
_CHECKPOINTS = "CheckpointMonitor"
# Defaults of `CheckpointMonitor` in MindFormers 1.9 (`core/callback/callback.py`).
_SAVED_EVERY, _KEPT, _PREFIX = 1, 5, "CKP"


def decide_mindformers(draft: MigrationDraft) -> None:
    """Decide every key: related keys, those of the model, those in the table, then defaults that differ."""
    served, folder = is_served(draft), find_missing_folder(draft)
    if served:
        _check_pipeline(draft)
    for decide in (
        _decide_batch,
        _decide_steps,
        _decide_sharding,
        _decide_sequence,
        _decide_clipping,
        _decide_mask,
        _decide_columns,
    ):
        decide(draft)
    if served:
        apply_layers(draft)
        apply_model(draft)
    elif folder is not None:
        ask_model(draft, folder)
    else:
        refuse_model(draft)
    for decide in (_decide_callbacks, _ask_other_data, _decide_monitoring, _ask_folder):
        decide(draft)
    apply_table(draft)
    if served:
        apply_defaults(draft)


def _read_count(draft: MigrationDraft, dotted: str, default: int = 1) -> int | None:
    # Return a positive integer, or None for another value.
    value = draft.get(dotted, default)
    return value if type(value) is int and 0 < value < _LARGEST else None


def _read_degrees(draft: MigrationDraft) -> dict[str, int] | None:
    # Return the size of each parallel dimension; None if one is not a number.
    if draft.get("use_parallel", default=False) is not True:
        return dict.fromkeys(_DEGREES, 1)
    found = {name: _read_count(draft, f"parallel_config.{name}") for name in _DEGREES}
    known = {name: number for name, number in found.items() if number is not None}
    return known if len(known) == len(found) else None


def global_batch(draft: MigrationDraft) -> tuple[int, int] | None:
    """Return the samples per micro-batch of one rank, and per step of the job.

    ``_check_global_batch_size_for_auto_parallel`` of ``trainer/base_trainer.py`` (1.9): micro-batches only count with a pipeline,
    accumulation only without one.
    """
    split = _read_degrees(draft)
    size, interleaved = _read_count(draft, "runner_config.batch_size"), _read_count(draft, "micro_batch_interleave_num")
    if split is None or size is None or interleaved is None:
        return None
    more = _read_count(draft, _MICRO_BATCHES if split["pipeline_stage"] > 1 else _ACCUMULATION)
    return None if more is None else (size, size * interleaved * more * split["data_parallel"])


def _check_pipeline(draft: MigrationDraft) -> None:
    # A network that the dynamic graph cannot split into stages blocks the migration of a pipeline.
    stages = _read_count(draft, "parallel_config.pipeline_stage")
    model = draft.target_model
    if stages != 1 and draft.get("use_parallel", default=False) and "dynamic" in model.modes and not model.stages:
        draft.drop(("parallel_config", "pipeline_stage"), why("no-stages", model=model.kind), blocks=True)


def _decide_batch(draft: MigrationDraft) -> None:
    found, split = global_batch(draft), _read_degrees(draft)
    size = ("runner_config", "batch_size")
    keys = (_ACCUMULATION, _MICRO_BATCHES, "micro_batch_interleave_num", "parallel_config.data_parallel")
    if found is None or split is None:
        for path in (size, *(tuple(key.split(".")) for key in keys)):
            draft.ask(path, why("batch"), ("training",))
        return
    local, whole = found
    draft.translate(size, ("training", "local_batch_size"), local)
    target = ("training", "global_batch_size")
    draft.values[target] = whole
    idle = _ACCUMULATION if split["pipeline_stage"] > 1 else _MICRO_BATCHES
    for key in keys:
        path = tuple(key.split("."))
        if key == idle:
            draft.default(path, why("batch-idle"))
        elif key == "micro_batch_interleave_num" and draft.get(key) not in (None, 1):
            draft.translate(path, target, whole, why("interleaved-batches"))
        else:
            draft.translate(path, target, whole, why("global-batch", batch=whole))
    draft.note(target, why("global-batch-note", data=split["data_parallel"]))


def _decide_steps(draft: MigrationDraft) -> None:
    # Compute the number of steps from the size of the data, which is only known for a generated data set.
    found, epochs = global_batch(draft), _read_count(draft, "runner_config.epochs")
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
    reason = why("steps-of", samples=samples, batch=found[1], epochs=epochs)
    draft.translate(path, target, steps, reason)
    draft.note(target, reason)
    if stop > 0:
        draft.translate(("runner_config", "stop_step"), target, steps)
    else:
        draft.default(("runner_config", "stop_step"), why("off"))


def _decide_sharding(draft: MigrationDraft) -> None:
    # Decide which DP ranks shard weights and optimizer state: those of the parallel optimizer, or none.
    # ``_compute_data_parallel_size`` of ``pynative/trainer/trainer.py``: a negative value means all, else this many, and the rest
    # have copies.
    path = ("parallel", "enable_parallel_optimizer")
    size = ("parallel", "parallel_optimizer_config", "optimizer_weight_shard_size")
    other = ("parallel", "optimizer_weight_shard_size")
    target = ("parallelism", "data_parallel_shard")
    split = _read_degrees(draft)
    if draft.source.get(path) is not True or split is None:
        draft.translate(path, target, 1, why("not-sharded"))
        for one in (size, other):
            draft.default(one, why("not-sharded"))
        draft.note(target, why("not-sharded"))
        return
    most: Any = draft.source.get(size, draft.source.get(other, -1))
    data = split["data_parallel"]
    limited = type(most) is int and 0 < most < data
    if limited and data % most:
        draft.ask(size, why("shard-size", size=most, data=data), target)
    value = most if limited and not data % most else -1
    draft.translate(path, target, value, why("sharded"))
    for one in (size, other):
        draft.translate(one, target, value, why("sharded"))
    if value == -1:
        draft.note(target, why("sharded"))


def _decide_sequence(draft: MigrationDraft) -> None:
    path, target = ("parallel_config", "use_seq_parallel"), ("parallelism", "sequence_parallel")
    needed = require_sequence_parallel(draft, path, (_read_degrees(draft) or {}).get("model_parallel", 1))
    if needed and draft.has(path):
        draft.note(target, why("sequence"))
    elif draft.has(path):
        draft.translate(path, target, draft.get("parallel_config.use_seq_parallel", default=False))


_NO_CLIPPING = 1e9  # the trainer multiplies gradients by max_norm / norm if that is below 1: with 0 nothing is learnt


def _decide_clipping(draft: MigrationDraft) -> None:
    # Decide gradient clipping: the default is off in the static graph and on in the dynamic one.
    path, norm = ("runner_wrapper", "use_clip_grad"), ("runner_wrapper", "max_grad_norm")
    target = ("training", "max_norm")
    most: Any = draft.get("runner_wrapper.max_grad_norm", 1.0)
    # If `runner_wrapper` is empty or missing, clipping is on (`WrapperConfig` of `tools/register/template.py`).
    clips = draft.get("runner_wrapper.use_clip_grad", default=not draft.get("runner_wrapper"))
    number = isinstance(most, (int, float)) and not isinstance(most, bool)
    if clips is True and number:
        draft.translate(path, target, float(most), why("clip"))
        draft.translate(norm, target, float(most))
    elif clips:  # a string is also true, and a norm that is not a number has an unknown effect
        for one in (path, norm):
            draft.ask(one, why("type", key=".".join(target)), target)
    else:
        draft.translate(path, target, _NO_CLIPPING, why("no-clip"))
        draft.default(norm, why("no-clip"))
        draft.note(target, why("no-clip"))


def _decide_mask(draft: MigrationDraft) -> None:
    # Decide whether attention ends with each document: by default no, but the dynamic graph's trainer requires the key.
    # ``dataset/dataloader/blended_megatron_dataloader.py``, ``hf_dataloader.py`` (1.9); ``pynative/trainer/utils.py`` (2.0).
    kind = draft.get("train_dataset.data_loader.type")
    place = ("config", _MASK) if kind == _GENERATED else (_MASK,)
    if kind in (_GENERATED, "HFDataLoader") and not draft.has(("train_dataset", "data_loader", *place)):
        draft.add(("train_dataset", "dataloader", *place), value=False, reason=why("unset", key=_MASK))


def _decide_columns(draft: MigrationDraft) -> None:
    # Add the columns of a generated data set, which the static graph derives from switches: ``train_dataset.input_columns``, or
    # else the result of ``_get_columns_with_strategy`` (``trainer/base_trainer.py``, 1.9).
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


def _ask_other_data(draft: MigrationDraft) -> None:
    # Ask about keys of ``train_dataset_task.dataset_config`` that differ from the migrated data set.
    path, said = ("train_dataset_task", "dataset_config"), draft.get("train_dataset", {})
    if draft.source.get(path) != said:
        for one in draft.open_below(*path):
            if draft.source.get(one) != draft.source.get(("train_dataset", *one[2:])):
                draft.ask(one, why("other-data"), ("train_dataset",))


def _decide_monitoring(draft: MigrationDraft) -> None:
    # Monitoring settings are only read if monitoring is on.
    if draft.get("monitor_config.monitor_on", default=False) is not True:
        for path in draft.open_below("monitor_config"):
            if path[-1] != "monitor_on":
                draft.default(path, why("monitor-off"))


def _ask_folder(draft: MigrationDraft) -> None:
    # Ask about the model's folder: its weights are loaded if it has any and no checkpoint is named.
    # ``_try_use_pretrained_model_dir_as_ckpt`` of ``trainer/trainer.py`` (1.9).
    for path in (("pretrained_model_dir",), ("model", "pretrained_model_dir")):
        if draft.source.get(path) and not draft.get("load_checkpoint"):
            draft.ask(path, why("folder-weights"), ("checkpoint", "load_path"))


def _decide_callbacks(draft: MigrationDraft) -> None:
    # Decide callbacks by type; in the dynamic graph, saving is configured in another section and on by default.
    found = draft.get("callbacks", [])
    callbacks = found if isinstance(found, list) and all(isinstance(one, dict) for one in found) else []
    kinds = [one.get("type") for one in callbacks]
    for index, one in enumerate(callbacks):
        for path in draft.open_below("callbacks", index):
            key, value = str(path[-1]), draft.source.get(path)
            row = callback_row(one.get("type"), key, value)
            again = one.get("type") == _CHECKPOINTS and index != kinds.index(_CHECKPOINTS)
            if row is None or again or row.to == ("callbacks",):
                draft.ask(path, why("callback", type=one.get("type"), key=key), ("callbacks",))
            elif row.to == ("checkpoint", "enable_save"):
                draft.translate(path, row.to, value=True)
            else:
                apply_row(draft, row, path, value)
    if _CHECKPOINTS in kinds:
        reason = why("unset", key=_CHECKPOINTS)
        draft.add(("checkpoint", "save_interleaved_steps"), _SAVED_EVERY, reason)
        draft.add(("checkpoint", "save_max"), _KEPT, reason)
        draft.add(("checkpoint", "prefix"), _PREFIX, reason)
        folder = str(draft.get("output_dir", "./output")).rstrip("/") or "."
        target = ("checkpoint", "save_path")
        if target not in draft.values and draft.has(("output_dir",)):
            draft.translate(("output_dir",), target, f"{folder}/checkpoint", why("save-path"))
        draft.add(target, f"{folder}/checkpoint", why("save-path"))
    else:
        draft.add(("checkpoint", "enable_save"), value=False, reason=why("no-saving"))
