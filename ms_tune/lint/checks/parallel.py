"""Checks of MindFormers' ``parallel`` section, which MindSpore reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindformers import startup
from ms_tune.facts.models import names_of
from ms_tune.facts.registries import mindspore_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext

_PIPELINE = ("parallel", "pipeline_config")
_KEYS = ("pipeline_interleave", "pipeline_scheduler")


def pipeline_config(context: CheckContext) -> Iterator[Violation]:
    """What ``set_pipeline_config`` refuses."""
    value = context.source.get(_PIPELINE)
    if value is None:
        return
    if not isinstance(value, dict):
        yield Violation(_PIPELINE)
        return
    for key in value:
        if key not in _KEYS:
            yield Violation((*_PIPELINE, str(key)), "unknown", at_key=True)
    for key in _KEYS:
        if key not in value:
            yield Violation(_PIPELINE, "missing", {"missing": key}, at_key=True)
    interleave, scheduler = (value.get(key) for key in _KEYS)
    if _KEYS[0] in value and not isinstance(interleave, bool):
        yield Violation((*_PIPELINE, _KEYS[0]))
    if _KEYS[1] in value and scheduler not in mindspore_values("pipeline_scheduler"):
        yield Violation((*_PIPELINE, _KEYS[1]))
    elif interleave is False and scheduler not in ("1f1b", None):
        yield Violation((*_PIPELINE, _KEYS[1]), "interleave")


def interleave_without_number(context: CheckContext) -> Iterator[Violation]:
    """Interleave without the number of chunks, which ``LayerSetting`` multiplies with: legacy models have 1 of their own."""
    model = context.mapping("model.model_config")
    chunks = names_of("virtual_pipeline_model_parallel_size")
    counted = any(model.get(name) is not None for name in chunks)
    absent = startup.is_legacy(context) and chunks[1] not in model
    if startup.interleaves(context) and not counted and not absent:
        yield Violation((*_PIPELINE, "pipeline_interleave"))


def sequence_without_tensor(context: CheckContext) -> Iterator[Violation]:
    """Sequence parallelism with one tensor-parallel rank (``ModelParallelConfig.__post_init__``, 1.6 to 2.1).

    Where the network is not split, all sizes are set back to 1; since 1.8 the switch is turned off as well.
    """
    splits = startup.splits(context)
    tensor = context.integer("parallel_config.model_parallel", 1) if splits else 1
    kept = startup.release(context) in ("1.6", "1.7") or (splits and bool(context.get("use_parallel")))
    if kept and tensor == 1 and context.get("parallel_config.use_seq_parallel") is True:
        yield Violation(("parallel_config", "use_seq_parallel"))


def dataset_strategy(context: CheckContext) -> Iterator[Violation]:
    """Without ``full_batch`` the first number of the strategy has to be the data-parallel size."""
    # The template's defaults: parallel_mode 1, full_batch True (ParallelConfig of register/template.py).
    if context.source.get(("parallel", "full_batch"), default=True):  # a null written out is no default
        return
    if context.get("parallel.parallel_mode", 1) not in mindspore_values("splitting"):
        return
    strategy = context.get("parallel.dataset_strategy")
    ways = context.integer("parallel_config.data_parallel", 1)
    path = ("parallel", "dataset_strategy")
    if not isinstance(strategy, list) or not strategy or not isinstance(strategy[0], list) or not strategy[0]:
        where = path if strategy is not None else ("parallel", "full_batch")
        yield Violation(where, "form", {"wanted": ways})
    elif strategy[0][0] != ways:
        related = ((("parallel_config", "data_parallel"), "data"),)
        yield Violation((*path, 0, 0), params={"given": strategy[0][0], "wanted": ways}, related=related)


def interleave_of_whole_sequence(context: CheckContext) -> Iterator[Violation]:
    """``fine_grain_interleave`` with a sequence that is not split (``_check_config_campacity`` of ``check_rules``, 1.6 to 2.1)."""
    number = context.integer("model.model_config.fine_grain_interleave", 1) or 1
    ways = (context.integer("parallel_config.context_parallel", 1) or 1) if startup.splits(context) else 1
    if number > 1 and ways <= 1 and not startup.splits_sequence(context):
        yield Violation(("model", "model_config", "fine_grain_interleave"))
