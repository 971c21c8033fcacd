"""Checks of MindSpeed-Core-MS r0.1.0 that look at several values together.

How layers are split: ``mindspeed_ms/legacy/model/transformer.py`` (``_get_num_layers``, 1058 to 1155); how recompute
lists are read: the same file (1328 to 1523).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindspeed_ms.plan import divide
from ms_tune.dialects.plan_traps import passes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext

_LISTS = ("recompute", "select_recompute", "select_comm_recompute")
_MOST = 4096  # stages or chunks; a config must not make the linter fill the memory
_TEXT = 2000  # characters of a list that is written as a text


def layer_list(context: CheckContext) -> Iterator[Violation]:
    """A ``num_layer_list`` that the library refuses; with one pipeline stage it is not looked at."""
    rows = _rows(context)
    stages, chunks = _sizes(context)
    layers = context.integer("model_config.num_layers")
    path = ("parallel_config", "num_layer_list")
    if rows is None or stages <= 1 or passes(context):
        return
    expected = f"({chunks}, {stages})" if chunks else f"({stages},)"
    flat = [item for row in rows for item in row]
    related = ((("model_config", "num_layers"), "layers"),)
    if any(not isinstance(item, int) or isinstance(item, bool) for item in flat):
        return
    numbers = [item for item in flat if isinstance(item, int)]
    if layers is not None and sum(numbers) != layers:
        yield Violation(path, "sum", {"sum": sum(numbers), "layers": layers}, related=related)
    elif any(number <= 0 for number in numbers):
        yield Violation(path, "empty")
    elif not _has_shape(context.get("parallel_config.num_layer_list"), stages, chunks):
        yield Violation(path, "shape", {"expected": expected})


def too_few_layers(context: CheckContext) -> Iterator[Violation]:
    """Fewer layers than stages (times chunks)."""
    stages, chunks = _sizes(context)
    layers = context.integer("model_config.num_layers")
    if layers is not None and 0 < layers < stages * (chunks or 1):
        yield Violation(("model_config", "num_layers"), params={"needed": stages * (chunks or 1)})


def recompute_shape(context: CheckContext) -> Iterator[Violation]:
    """A list of another shape than the stages (and chunks) have; an empty one means no layers."""
    stages, chunks = _sizes(context)
    if passes(context):
        return
    if context.get("parallel_config.standalone_embedding_stage") is True:
        stages -= 1
    for key in _LISTS:
        value = context.get(f"parallel_config.recompute_config.{key}")
        if isinstance(value, list) and value and not _has_shape(value, stages, chunks):
            expected = f"({chunks}, {stages})" if chunks else f"({stages},)"
            yield Violation(("parallel_config", "recompute_config", key), params={"expected": expected})


def recompute_negative(context: CheckContext) -> Iterator[Violation]:
    """A negative number of layers."""
    for key in _LISTS:
        value = context.get(f"parallel_config.recompute_config.{key}")
        for index, item in enumerate(value if isinstance(value, list) else ()):
            below = [item] if not isinstance(item, list) else item
            if any(isinstance(one, int) and one < 0 for one in below):
                yield Violation(("parallel_config", "recompute_config", key, index))


def recompute_sum(context: CheckContext) -> Iterator[Violation]:
    """More layers to recompute than a cell holds: full plus selective, or full plus communication."""
    counts = _cells(context)
    full = _cell_values(context, "recompute")
    for key in _LISTS[1:]:
        other = _cell_values(context, key)
        if counts is None or full is None or other is None:
            continue
        for (chunk, stage), layers in counts.items():
            both = full.get((chunk, stage), 0), other.get((chunk, stage), 0)
            # The check of the first list also stands for full recompute alone.
            if sum(both) > layers and (both[1] or key == _LISTS[2]):
                name = key if both[1] else "recompute"
                yield Violation(
                    ("parallel_config", "recompute_config", name),
                    params={"full": both[0], "other": both[1], "layers": layers, "chunk": chunk, "stage": stage},
                )
                break


def standalone_embedding(context: CheckContext) -> Iterator[Violation]:
    """The first rank, which has no layers, takes the last number of each list (index -1 of rank 0)."""
    stages, _ = _sizes(context)
    if context.get("parallel_config.standalone_embedding_stage") is not True or stages <= 1:
        return
    for key in _LISTS:
        value = context.get(f"parallel_config.recompute_config.{key}")
        if isinstance(value, list) and len(value) == stages - 1 and value[-1] and not isinstance(value[-1], list):
            yield Violation(("parallel_config", "recompute_config", key, len(value) - 1))


def ineffective_select(context: CheckContext) -> Iterator[Violation]:
    """Selective recompute with FlashAttention recomputes the activation, and only if it is a cell."""
    value = context.get("parallel_config.recompute_config.select_recompute")
    on = isinstance(value, list) and any(any(item) if isinstance(item, list) else item for item in value)
    activation = context.get("model_config.hidden_act", "gelu")
    if on and activation not in ("gelu", "fast_gelu"):
        path = ("parallel_config", "recompute_config", "select_recompute")
        yield Violation(
            path, params={"activation": activation}, related=((("model_config", "hidden_act"), "activation"),)
        )


def loss_scale_trio(context: CheckContext) -> Iterator[Violation]:
    """A part of dynamic loss scaling without the parts that its validator asks for; the value alone is let through."""
    names = ("loss_scale_value", "loss_scale_factor", "loss_scale_window")
    given = [name for name in names if context.get(f"training_config.{name}") is not None]
    if given and tuple(given) not in (names[:1], names[:2], names):
        absent = ", ".join(name for name in names if name not in given)
        yield Violation(("training_config", given[0]), params={"absent": absent}, at_key=True)


def replaced_types(context: CheckContext) -> Iterator[Violation]:
    """Data types that the library sets itself when it has read the config (``_check_arguments``, ``core/config.py``)."""
    model = context.get("model_config")
    if not isinstance(model, dict):
        return
    switch = next((name for name in ("bf16", "fp16") if context.get(f"training_config.{name}") is True), None)
    winner = {"bf16": "bfloat16", "fp16": "float16"}.get(switch or "")
    for key in ("params_dtype", "compute_dtype"):
        if winner and context.get(f"model_config.{key}", winner) != winner:
            yield Violation(("model_config", key), params={"winner": winner, "switch": switch})
    computed = winner or context.get("model_config.compute_dtype", "float32")
    if context.get("parallel_config.recv_dtype", computed) != computed:
        yield Violation(("parallel_config", "recv_dtype"), "received", {"winner": computed})


def _sizes(context: CheckContext) -> tuple[int, int]:
    """Stages and chunks; no chunks (0) unless there are more than one, as the training entry has it."""
    stages = context.integer("parallel_config.pipeline_model_parallel_size", 1) or 1
    chunks = context.integer("parallel_config.virtual_pipeline_model_parallel_size", 0) or 0
    return min(max(stages, 1), _MOST), min(chunks, _MOST) if chunks > 1 else 0


def _rows(context: CheckContext) -> list[list[object]] | None:
    value = _layer_list(context)
    if not isinstance(value, list) or not value:
        return None
    return value if all(isinstance(row, list) for row in value) else [value]


def _layer_list(context: CheckContext) -> object:
    """The list; the library reads a text with ``ast.literal_eval``, and so does this."""
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
        return True  # its shape is told by what it is read as, which the other rules look at
    if not isinstance(value, list):
        return False
    if not chunks:
        return len(value) == stages and not any(isinstance(item, list) for item in value)
    return len(value) == chunks and all(isinstance(row, list) and len(row) == stages for row in value)


def _cells(context: CheckContext) -> dict[tuple[int, int], int] | None:
    """Layers of each (chunk, stage)."""
    stages, chunks = _sizes(context)
    layers = context.integer("model_config.num_layers")
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
    stages, chunks = _sizes(context)
    value = context.get(f"parallel_config.recompute_config.{key}")
    if not value:
        return {}
    if not isinstance(value, list) or not _has_shape(value, stages, chunks):
        return None
    rows = value if chunks else [value]
    return {(c, s): item for c, row in enumerate(rows) for s, item in enumerate(row) if isinstance(item, int)}
