"""Checks of what the dynamic-graph trainer builds by name: data, monitors, shards, the file of results.

Data: ``_build_dataset`` and ``validate_balance_config`` in ``mindformers/pynative/trainer/utils.py``; what may be balanced:
``mindformers/dataset/dataloader/balance_scheduler.py``; shards: ``mindformers/pynative/trainer/trainer.py`` and
``mindformers/pynative/distributed/parallel_dims.py``; results: ``InferenceConfig`` in ``mindformers/pynative/config/config.py``
(2.0 and 2.1).
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.facts.registries import registered
from ms_tune.lint.checks.pynative import is_distributed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext

_LOADER = ("train_dataset", "dataloader")
_MEGATRON, _HF, _RECORD, _ORDERED = (
    *("BlendedMegatronDatasetDataLoader", "HFDataLoader", "MindDataset", "OrderedIndexDataLoader"),
)
_EOD = "create_compressed_eod_mask"
_RESULTS = ("", ".jsonl", ".json", ".txt")


def loader(context: CheckContext) -> Iterator[Violation]:
    """A kind of data that the trainer does not build; its list is one of names in the code, and not a register."""
    release = context.version
    known = sorted(registered("dataset_loader", release, context.dialect))
    kind = context.get("train_dataset.dataloader.type")
    if isinstance(kind, str) and kind not in known:
        yield Violation((*_LOADER, "type"), params={"known": ", ".join(known)})


def unsaid_mask(context: CheckContext) -> Iterator[Violation]:
    """A loader that is asked for a key which has no default there."""
    values = context.mapping("train_dataset.dataloader")
    kind = values.get("type")
    inner = values.get("config")
    if kind == _HF and _EOD not in values:
        yield Violation((*_LOADER, _EOD), params={"path": f"train_dataset.dataloader.{_EOD}"})
    if kind == _MEGATRON and isinstance(inner, dict) and _EOD not in inner:
        yield Violation((*_LOADER, "config", _EOD), params={"path": f"train_dataset.dataloader.config.{_EOD}"})


def balance(context: CheckContext) -> Iterator[Violation]:
    """Balanced data that cannot be: another loader, a stream, or attention that does not know where samples end."""
    if context.get("train_dataset.balance_enabled") is not True:
        return
    path = ("train_dataset", "balance_enabled")
    values = context.mapping("train_dataset.dataloader")
    kind = values.get("type")
    inner = values.get("config") if kind == _MEGATRON else values
    if kind not in (_MEGATRON, _HF, _ORDERED):
        if isinstance(kind, str):
            yield Violation(path, "loader", related=(((*_LOADER, "type"), "kind"),))
    elif kind == _HF and values.get("streaming"):
        yield Violation(path, "stream", related=(((*_LOADER, "streaming"), "kind"),))
    elif isinstance(inner, dict) and (not inner.get(_EOD) or inner.get("create_seq_len_vector")):
        yield Violation(path)


def shard_sizes(context: CheckContext) -> Iterator[Violation]:
    """No ranks to shard over: the trainer divides by the one, and refuses the other where there is something to shard."""
    if context.integer("parallelism.data_parallel_shard") == 0:
        yield Violation(("parallelism", "data_parallel_shard"))
    dense = context.integer("parallelism.dense_fsdp_shard_size")
    if dense is not None and dense < 1 and is_distributed(context):
        yield Violation(("parallelism", "dense_fsdp_shard_size"), "dense")


def monitored_layers(context: CheckContext) -> Iterator[Violation]:
    """A negative id among the layers to monitor."""
    layers = context.get("monitor.moe_monitor.target_layers")
    for index, layer in enumerate(layers if isinstance(layers, list) else ()):
        if isinstance(layer, int) and layer < 0:
            yield Violation(("monitor", "moe_monitor", "target_layers", index))


def results_file(context: CheckContext) -> Iterator[Violation]:
    """A file of results whose ending says nothing that the trainer could write."""
    output = context.get("inference.output")
    if isinstance(output, str) and output and PurePath(output).suffix.lower() not in _RESULTS:
        yield Violation(("inference", "output"))
