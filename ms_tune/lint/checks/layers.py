"""Checks of how the layers are split over pipeline stages.

The arithmetic is :mod:`ms_tune.dialects.mindformers.placement`; here its inputs are read, and left alone where the config does not
tell them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.layer_plan import FrameworkStop
from ms_tune.dialects.mindformers import startup
from ms_tune.dialects.mindformers.inputs import RecomputeInputs
from ms_tune.dialects.mindformers.placement import place
from ms_tune.facts.models import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.dialects.layer_plan import Placement

_MODEL = ("model", "model_config")
_OFFSET = (*_MODEL, "offset")
_MOST = 10_000  # layers or cells, as in the readers of the configs


def impossible_split(context: CheckContext) -> Iterator[Violation]:
    """An offset that MindFormers refuses (``LayerSetting._check_inputs``, 1.6 to 2.1)."""
    inputs, path = _inputs(context)
    if inputs is None:
        yield from _impossible_shape(context)
        return
    refused = [stop for stop in map(_refusal, _readings(context, inputs)) if stop]
    if refused and len(refused) == len(_readings(context, inputs)):
        related = () if path == _OFFSET else ((path, "layers"),)
        yield Violation(
            _OFFSET if context.get(".".join(_OFFSET)) is not None else path,
            params=_params(inputs, error=str(refused[0])),
            related=related,
        )


def _impossible_shape(context: CheckContext) -> Iterator[Violation]:
    """An offset of more or fewer numbers than stages, which is refused however many layers there turn out to be."""
    inputs = _with_layers(context, 0) if isinstance(context.get(".".join(_OFFSET)), list) else None
    if inputs is None or _is_part(context):
        return
    errors = {str(_refusal(inputs._replace(layers=layers))) for layers in (0, 1)}
    if len(errors) == 1 and "offset.shape" in (error := errors.pop()):
        rest = f"num_layers % {inputs.stages * ((inputs.interleave_num or 1) if inputs.interleave else 1)}"
        yield Violation(_OFFSET, message="shape", params=_params(inputs, error=error, rest=rest))


def miscounted_split(context: CheckContext) -> Iterator[Violation]:
    """An offset that MindFormers accepts and then counts more than once.

    The sum is compared before a number, or a list with several chunks, is spread over all cells (1.6 to 2.1).
    """
    inputs, path = _inputs(context)
    if inputs is None:
        return
    placements = [_placement(reading) for reading in _readings(context, inputs)]
    if placements and all(placement and placement.slots != inputs.layers for placement in placements):
        slots = next(placement.slots for placement in placements if placement)
        yield Violation(_OFFSET, params=_params(inputs, slots=slots), related=((path, "layers"),))


def _inputs(context: CheckContext) -> tuple[RecomputeInputs | None, KeyPath]:
    """What decides about the split, or None if the config does not tell all of it, and where the layer count is."""
    model, legacy = context.model, startup.is_legacy(context)
    layers, place = model.number("num_layers"), model.field("num_layers").path
    if layers is None or len(model.written("num_layers")) > 1 or _is_part(context):
        return None, ()
    if place is None and (context.get("base_config") or (legacy and context.get("pretrained_model_dir"))):
        return None, ()  # the other file may have it
    return _with_layers(context, layers), place or _MODEL


def _is_part(context: CheckContext) -> bool:
    """Whether the model is a part of a multi-modal one, which has stages of its own."""
    return any(map(context.model.number, ("stage_num", "start_stage")))


def _with_layers(context: CheckContext, layers: int) -> RecomputeInputs | None:
    """What decides about the split of so many layers, or None if the config does not tell all of it."""
    legacy, offset = startup.is_legacy(context), context.model.value("offset")
    stages, interleave = startup.stages(context), startup.interleaves(context)
    chunks = context.integer(".".join((*_MODEL, "pp_interleave_num")), 1 if legacy else None)
    if stages is None or stages < 1 or offset is UNKNOWN or (interleave and chunks is None):
        return None  # some legacy models know no offset
    return RecomputeInputs(
        layers=layers,
        stages=stages,
        offset=offset,
        interleave=interleave,
        interleave_num=chunks,
        scheduler=startup.scheduler(context),
        legacy=legacy,
        mtp_layers=0 if legacy else _further(context),
        version=startup.release(context),
    )


def too_few(context: CheckContext) -> Iterator[Violation]:
    """Fewer layers than stages, or than stages times chunks (``PreTrainedModel.check_pipeline_stage``, 1.6 to 2.1).

    DeepSeek-V3 has a check of its own, which also looks at a single stage (``models/deepseek3/utils.py``).
    """
    inputs, path = _inputs(context)
    if inputs is None or not startup.splits_by_strategy(context):
        return
    if inputs.stages <= 1 and context.model.kind != "deepseek_v3":
        return
    needed = inputs.stages * (inputs.interleave_num or 1 if inputs.interleave else 1)
    layers = inputs.layers + _further(context)
    if layers < needed:
        yield Violation(path, params=_params(inputs, needed=needed))


def _further(context: CheckContext) -> int:
    """Layers that predict further tokens; some models count them with the others."""
    return context.model.number("mtp_num_layers") or 0


def _readings(context: CheckContext, inputs: RecomputeInputs) -> list[RecomputeInputs]:
    """The config as different models read it: a finding is one only if it is one for all of them.

    None for counts that no model has: layer by layer they would fill the memory.
    """
    if max(inputs.layers, inputs.stages * (inputs.interleave_num or 1)) > _MOST:
        return []
    extra = _further(context) if inputs.legacy else 0
    return [inputs, inputs._replace(layers=inputs.layers + extra)] if extra else [inputs]


def _refusal(inputs: RecomputeInputs) -> FrameworkStop | None:
    try:
        place(inputs)
    except FrameworkStop as stop:
        return stop
    return None


def _placement(inputs: RecomputeInputs) -> Placement | None:
    try:
        return place(inputs)
    except FrameworkStop:
        return None


def _params(inputs: RecomputeInputs, **more: object) -> dict[str, object]:
    chunks = inputs.interleave_num if inputs.interleave else 1
    cells = inputs.stages * (chunks or 1)
    return {
        "layers": inputs.layers,
        "stages": inputs.stages,
        "chunks": chunks,
        "offset": inputs.offset,
        "rest": inputs.layers % cells,
        **more,
    }
