"""Settings that MindSpeed-Core-MS r0.1.0 refuses: layers, recompute lists, registered names, missing required settings.

Sources: split of layers ``mindspeed_ms/legacy/model/transformer.py`` (lines 1058 to 1155), recompute lists the same
file (1328 to 1523). Parts of the model: ``mindspeed_ms/legacy/model/norm.py``, ``utils.py`` and ``language_model.py``;
registered names: ``legacy/model/activation.py``, ``core/optimizer/__init__.py``, ``core/optimizer/zero/adamw_zero.py``,
``core/tensor_parallel/cross_entropy.py``; loss scaling: ``training/training.py``; decay:
``training/optimizer_param_scheduler.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ms_tune.dialects import FrameworkStop
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.mindspeed_ms.ignored import trains_in_half
from ms_tune.dialects.mindspeed_ms.placement import LayerPlacer, MindSpeedInputs, read_counts
from ms_tune.dialects.mindspeed_ms.read import TextTooBigError, literal_list
from ms_tune.dialects.plan_checks import passes
from ms_tune.dialects.values import are_numbers, leaves, read_array
from ms_tune.facts.models import LAYERS

_LISTS = ("recompute", "select_recompute", "select_comm_recompute")
_MOST = 4096  # stages or chunks; limits the linter's memory
_TRIO = ("loss_scale_value", "loss_scale_factor", "loss_scale_window")
_OPTIMIZERS = ("Adam", "SGD", "mint.AdamW", "SpeedAdamW")
_SHARDED = ("AdamW",)  # the library appends ZeRO to the name, and only AdamWZeRO exists


def find_bad_layer_list(context: CheckContext) -> Iterator[Violation]:
    """Report a ``num_layer_list`` that the library refuses; it is ignored with one pipeline stage."""
    inputs, layers = _placement_inputs(context), context.model.layers
    path, counts = ("parallel_config", "num_layer_list"), leaves(inputs.num_layer_list)
    if not inputs.num_layer_list or inputs.stages <= 1 or passes(context) or not are_numbers(counts):
        return
    layout, numbers = LayerPlacer(inputs).layout, [count for count in counts if isinstance(count, int)]
    if layers is not None and sum(numbers) != layers:
        related = ((("model_config", LAYERS), "layers"),)
        yield Violation(path, "sum", {"sum": sum(numbers), "layers": layers}, related=related)
    elif min(numbers, default=1) <= 0:
        yield Violation(path, "empty")
    elif isinstance(context.get("parallel_config.num_layer_list"), list) and not _fits(inputs.num_layer_list, layout):
        yield Violation(path, "shape", {"expected": str(layout)})


def find_misshapen_recompute(context: CheckContext) -> Iterator[Violation]:
    """Report a list whose shape differs from (chunks,) stages; an empty one means no layers."""
    layout = LayerPlacer(_placement_inputs(context)).layout
    for key in _LISTS if not passes(context) else ():
        value = context.get(f"parallel_config.recompute_config.{key}")
        if isinstance(value, list) and value and not _fits(value, layout):
            yield Violation(("parallel_config", "recompute_config", key), params={"expected": str(layout)})


def find_excess_recompute(context: CheckContext) -> Iterator[Violation]:
    """Report more recomputed layers than a cell has: full plus selective, or full plus communication."""
    inputs, lists = _placement_inputs(context), context.mapping("parallel_config.recompute_config")
    placer = LayerPlacer(inputs)
    try:
        placer.check_parallel()
        cells = [(*cell, placer.place_cell(*cell, [])[0]) for cell in placer.cells()] if not inputs.standalone else ()
        full, *others = (read_counts(lists[key]) if lists.get(key) else None for key in _LISTS)
    except FrameworkStop:  # another check reports it
        return
    for key, other in zip(_LISTS[1:], others, strict=True):
        if any(one is not None and one[0] != placer.layout for one in (full, other)):
            continue
        for place, (chunk, stage, layers) in enumerate(cells):
            both = tuple(one[1][place] if one is not None else 0 for one in (full, other))
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
    inputs = _placement_inputs(context)
    for key in _LISTS if inputs.standalone and inputs.stages > 1 else ():
        value = context.get(f"parallel_config.recompute_config.{key}")
        if (
            isinstance(value, list)
            and len(value) == inputs.stages - 1
            and value[-1]
            and not isinstance(value[-1], list)
        ):
            yield Violation(("parallel_config", "recompute_config", key, len(value) - 1))


def _placement_inputs(context: CheckContext) -> MindSpeedInputs:
    """Return the inputs of placement, as far as they are valid; no layers if their number is unknown."""
    listed = context.get("parallel_config.num_layer_list")
    if isinstance(listed, str):
        try:
            listed = literal_list(listed)
        except (FrameworkStop, TextTooBigError):
            listed = None
    chunks = context.integer("parallel_config.virtual_pipeline_model_parallel_size", 0) or 0
    return MindSpeedInputs(
        layers=context.model.layers or 0,
        stages=min(max(context.integer("parallel_config.pipeline_model_parallel_size", 1) or 1, 1), _MOST),
        chunks=min(chunks, _MOST) if chunks > 1 else None,
        standalone=context.get("parallel_config.standalone_embedding_stage") is True,
        num_layer_list=listed if isinstance(listed, list) else None,
    )


def _fits(value: object, layout: tuple[int, ...]) -> bool:
    try:
        return read_array(value)[0] == layout
    except FrameworkStop:
        return False


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
