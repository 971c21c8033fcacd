"""Settings that MindSpeed-Core-MS r0.1.0 refuses: layers, recompute lists, registered names, missing required settings.

Sources: split of layers ``mindspeed_ms/legacy/model/transformer.py`` (lines 1058 to 1155), recompute lists the same
file (1328 to 1523). Parts of the model: ``mindspeed_ms/legacy/model/norm.py``, ``utils.py`` and ``language_model.py``;
registered names: ``legacy/model/activation.py``, ``core/optimizer/__init__.py``, ``core/optimizer/zero/adamw_zero.py``,
``core/tensor_parallel/cross_entropy.py``; loss scaling: ``training/training.py``; decay:
``training/optimizer_param_scheduler.py``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.mindspeed_ms.ignored import trains_in_half
from ms_tune.dialects.mindspeed_ms.placement import divide
from ms_tune.dialects.plan_checks import passes
from ms_tune.facts.models import LAYERS

_LISTS = ("recompute", "select_recompute", "select_comm_recompute")
_MOST = 4096  # stages or chunks; limits the linter's memory
_TEXT = 2000  # characters of a list written as text
_TRIO = ("loss_scale_value", "loss_scale_factor", "loss_scale_window")
_OPTIMIZERS = ("Adam", "SGD", "mint.AdamW", "SpeedAdamW")
_SHARDED = ("AdamW",)  # the library appends ZeRO to the name, and only AdamWZeRO exists


def find_bad_layer_list(context: CheckContext) -> Iterator[Violation]:
    """Report a ``num_layer_list`` that the library refuses; it is ignored with one pipeline stage."""
    rows = _rows(context)
    stages, chunks = _stages_and_chunks(context)
    layers = context.model.layers
    path = ("parallel_config", "num_layer_list")
    if rows is None or stages <= 1 or passes(context):
        return
    expected = f"({chunks}, {stages})" if chunks else f"({stages},)"
    flat = [item for row in rows for item in row]
    related = ((("model_config", LAYERS), "layers"),)
    if any(not isinstance(item, int) or isinstance(item, bool) for item in flat):
        return
    numbers = [item for item in flat if isinstance(item, int)]
    if layers is not None and sum(numbers) != layers:
        yield Violation(path, "sum", {"sum": sum(numbers), "layers": layers}, related=related)
    elif any(number <= 0 for number in numbers):
        yield Violation(path, "empty")
    elif not _has_shape(context.get("parallel_config.num_layer_list"), stages, chunks):
        yield Violation(path, "shape", {"expected": expected})


def find_misshapen_recompute(context: CheckContext) -> Iterator[Violation]:
    """Report a list whose shape differs from (chunks,) stages; an empty one means no layers."""
    stages, chunks = _stages_and_chunks(context)
    if passes(context):
        return
    if context.get("parallel_config.standalone_embedding_stage") is True:
        stages -= 1
    for key in _LISTS:
        value = context.get(f"parallel_config.recompute_config.{key}")
        if isinstance(value, list) and value and not _has_shape(value, stages, chunks):
            expected = f"({chunks}, {stages})" if chunks else f"({stages},)"
            yield Violation(("parallel_config", "recompute_config", key), params={"expected": expected})


def find_excess_recompute(context: CheckContext) -> Iterator[Violation]:
    """Report more recomputed layers than a cell has: full plus selective, or full plus communication."""
    counts = _cells(context)
    full = _cell_values(context, "recompute")
    for key in _LISTS[1:]:
        other = _cell_values(context, key)
        if counts is None or full is None or other is None:
            continue
        for (chunk, stage), layers in counts.items():
            both = full.get((chunk, stage), 0), other.get((chunk, stage), 0)
            # The check of the communication list also covers full recompute alone.
            if sum(both) > layers and (both[1] or key == _LISTS[2]):
                name = key if both[1] else "recompute"
                yield Violation(
                    ("parallel_config", "recompute_config", name),
                    params={"full": both[0], "other": both[1], "layers": layers, "chunk": chunk, "stage": stage},
                )
                break


def find_recompute_of_embedding(context: CheckContext) -> Iterator[Violation]:
    """Report lists of which the first rank, without layers, uses the last number (index -1 of rank 0)."""
    stages, _ = _stages_and_chunks(context)
    if context.get("parallel_config.standalone_embedding_stage") is not True or stages <= 1:
        return
    for key in _LISTS:
        value = context.get(f"parallel_config.recompute_config.{key}")
        if isinstance(value, list) and len(value) == stages - 1 and value[-1] and not isinstance(value[-1], list):
            yield Violation(("parallel_config", "recompute_config", key, len(value) - 1))


def _stages_and_chunks(context: CheckContext) -> tuple[int, int]:
    """Return stages and chunks; 0 chunks unless there are several, as in the training entry."""
    stages = context.integer("parallel_config.pipeline_model_parallel_size", 1) or 1
    chunks = context.integer("parallel_config.virtual_pipeline_model_parallel_size", 0) or 0
    return min(max(stages, 1), _MOST), min(chunks, _MOST) if chunks > 1 else 0


def _rows(context: CheckContext) -> list[list[object]] | None:
    value = _layer_list(context)
    if not isinstance(value, list) or not value:
        return None
    return value if all(isinstance(row, list) for row in value) else [value]


def _layer_list(context: CheckContext) -> object:
    """Return the list; a text is parsed with ``ast.literal_eval`` like in the library."""
    value = context.get("parallel_config.num_layer_list")
    if not isinstance(value, str) or len(value) > _TEXT:
        return value
    try:
        read = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return [list(row) if isinstance(row, tuple) else row for row in read] if isinstance(read, (list, tuple)) else None


def _has_shape(value: object, stages: int, chunks: int) -> bool:
    if isinstance(value, str):
        return True  # its shape is that of the parsed list, which other rules check
    if not isinstance(value, list):
        return False
    if not chunks:
        return len(value) == stages and not any(isinstance(item, list) for item in value)
    return len(value) == chunks and all(isinstance(row, list) and len(row) == stages for row in value)


def _cells(context: CheckContext) -> dict[tuple[int, int], int] | None:
    stages, chunks = _stages_and_chunks(context)
    layers = context.model.layers
    if layers is None or context.get("parallel_config.standalone_embedding_stage") or layers < stages * (chunks or 1):
        return None
    rows = _rows(context) if stages > 1 else None
    if rows is not None:
        ok = (
            _has_shape(rows if chunks else rows[0], stages, chunks)
            and sum(item for row in rows for item in row if isinstance(item, int)) == layers
        )
        if not ok:
            return None
        return {(c, s): item for c, row in enumerate(rows) for s, item in enumerate(row) if isinstance(item, int)}
    parts = divide(layers, chunks) if chunks else [layers]
    return {(c, s): count for c, part in enumerate(parts) for s, count in enumerate(divide(part, stages))}


def _cell_values(context: CheckContext, key: str) -> dict[tuple[int, int], int] | None:
    stages, chunks = _stages_and_chunks(context)
    value = context.get(f"parallel_config.recompute_config.{key}")
    if not value:
        return {}
    if not isinstance(value, list) or not _has_shape(value, stages, chunks):
        return None
    rows = value if chunks else [value]
    return {(c, s): item for c, row in enumerate(rows) for s, item in enumerate(row) if isinstance(item, int)}


def find_missing_loss_scale(context: CheckContext) -> Iterator[Violation]:
    """Report float16 training without a loss scale: the dynamic scale then lacks its settings."""
    absent = [name for name in _TRIO if context.get(f"training_config.{name}") is None]
    if context.get("training_config.loss_scale") is None and absent and trains_in_half(context):
        yield Violation(("training_config", "fp16"), params={"absent": ", ".join(absent)})


def find_unregistered_names(context: CheckContext) -> Iterator[Violation]:
    """Report a text at one of ``names`` that is neither listed there nor registered for the kind in ``registers``."""
    listed, registers = context.options["names"], context.options.get("registers")
    for dotted, known in listed.items() if isinstance(listed, dict) else ():
        value = context.get(str(dotted))
        kind = registers.get(dotted) if isinstance(registers, dict) else None
        if isinstance(value, str) and value not in known and not _is_registered(context, kind, value):
            path = tuple(str(dotted).split("."))
            yield Violation(path, params={"known": ", ".join(map(str, known))})


def _is_registered(context: CheckContext, kind: str | None, name: str) -> bool:
    return kind is not None and context.job.checkout is not None and name in context.job.checkout.classes.get(kind, {})


def find_unregistered_optimizer(context: CheckContext) -> Iterator[Violation]:
    """Report an optimizer that is not registered; ZeRO without gradient buffers uses other names."""
    zero = context.get("parallel_config.zero_level") and not context.get("training_config.wrap_with_ddp")
    known = _SHARDED if zero else _OPTIMIZERS
    value = context.get("optimizer_config.optimizer_type")
    params = {"known": ", ".join(known)}
    looked_up = f"{value or 'AdamWeightDecay'}ZeRO" if zero else value or "AdamWeightDecay"
    if value not in known and _is_registered(context, "library_optimizer", str(looked_up)):
        return
    if isinstance(value, str) and value not in known:
        related = ((("parallel_config", "zero_level"), "sharded"),) if zero else ()
        yield Violation(("optimizer_config", "optimizer_type"), params=params, related=related)
    # A config with the sections that every training needs is not an excerpt.
    sections = ("training_config", "dataset_config", "optimizer_config")
    if value is None and all(map(context.mapping, sections)) and context.model.layers is not None:
        yield Violation(("optimizer_config", "optimizer_type"), "missing", params, at_key=True)
