"""Checks of the data against the model and against how it is given to the ranks (MindFormers 1.6 to 2.1, both graphs)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindformers import startup
from ms_tune.facts.registries import mindspore_values
from ms_tune.source.yaml import find_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext


def sequence_length(context: CheckContext) -> Iterator[Violation]:
    """Data of another length than the model's, where both are written.

    ``blended_megatron_dataloader.py`` and the handlers of ``hf_dataloader.py`` cut samples to the ``seq_length`` that they are
    given; the network is built for its own. The option ``paths`` says where lengths of data stand.
    """
    field = context.model.field("seq_length")
    wanted, place = field.value, field.path
    if place is None or not isinstance(wanted, int) or isinstance(wanted, bool):
        return
    listed = context.options["paths"]
    for dotted in listed if isinstance(listed, list) else ():
        for path, given in find_values(context.source.data, _path(str(dotted))):
            if isinstance(given, int) and not isinstance(given, bool) and given != wanted:
                yield Violation(path, params={"given": given, "wanted": wanted}, related=((place, "model"),))


def columns(context: CheckContext) -> Iterator[Violation]:
    """``dataset_strategy`` with another number of entries than the data has columns.

    ``_get_columns_with_strategy`` of ``trainer/base_trainer.py`` takes both as they are written; MindSpore asks for one entry
    for each input (``VirtualDatasetInfo::CheckStrategy``).
    """
    strategy, names = context.get("parallel.dataset_strategy"), context.get("train_dataset.input_columns")
    if not isinstance(strategy, list) or not isinstance(names, list) or not strategy or not names:
        return
    if context.source.get(("parallel", "full_batch"), default=True) and startup.is_legacy(context):
        return  # the strategy is set back to "full_batch"
    splitting = context.get("parallel.parallel_mode", 1) in mindspore_values("splitting")
    if splitting and startup.is_parallel(context) and len(strategy) != len(names):
        params = {"entries": len(strategy), "columns": len(names)}
        yield Violation(
            ("parallel", "dataset_strategy"),
            params=params,
            related=((("train_dataset", "input_columns"), "columns"),),
        )


def prediction(context: CheckContext) -> Iterator[Violation]:
    """What ``check_rules._check_predict_with_train_model`` refuses: several data-parallel copies, and split batches."""
    path: KeyPath = ("parallel_config", "data_parallel")
    copies = context.integer("parallel_config.data_parallel", 1) or 1
    if copies > 1 and startup.splits(context):
        yield Violation(path, "copies", {"copies": copies})
    if startup.splits(context) and not context.source.get(("parallel", "full_batch"), default=True):
        yield Violation(("parallel", "full_batch"))


def _path(dotted: str) -> KeyPath:
    return tuple(dotted.split("."))
