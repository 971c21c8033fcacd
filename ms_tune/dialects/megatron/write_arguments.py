"""What Megatron-LM's ``validate_args`` makes of the arguments that place and recompute layers.

core_v0.12.1, ``megatron/training/arguments.py``, in its order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.megatron.refusal import fail, require

if TYPE_CHECKING:
    from ms_tune.dialects.megatron.inputs import MegatronInputs

_ARGUMENTS = "megatron/training/arguments.py"


def megatron_chunks(inputs: MegatronInputs) -> int | None:
    """``validate_args``: how many chunks; MindSpeed-LLM keeps two stages with a virtual pipeline away from it."""
    bypassed = inputs.stages == 2 and inputs.layers_of_chunk is not None  # noqa: PLR2004 - as the framework has it
    by_layers = None if bypassed else inputs.layers_of_chunk
    overlap = inputs.overlap and not bypassed
    layers = len(inputs.layer_list.split(",")) if inputs.layer_list else inputs.layers
    both = by_layers is not None and inputs.chunks is not None
    require(not both, "one-of-both")
    uneven = inputs.first is not None or inputs.last is not None
    if by_layers is None and inputs.chunks is None:
        if not uneven:
            require((layers + inputs.embedding + inputs.loss) % inputs.stages == 0, "layers-by-stages")
        return None
    _interleaved(inputs, overlap=overlap)
    if inputs.chunks is not None:
        return inputs.chunks
    require(not uneven, "uneven-by-ranks")
    number = layers + inputs.embedding + inputs.loss
    require(number % inputs.stages == 0, "layers-by-virtual-stages")
    return chunks_of(number // inputs.stages, by_layers or 0, _ARGUMENTS)


def _interleaved(inputs: MegatronInputs, *, overlap: bool) -> None:
    if overlap:
        require(inputs.stages > 1, "interleaved-stages")
    else:
        require(inputs.stages > 2, "interleaved-stages-without-overlap")  # noqa: PLR2004 - as the framework has it


def chunks_of(of_stage: int, of_chunk: int, file: str) -> int:
    """How many chunks of so many layers a stage has; MindSpeed-LLM asks it, too."""
    if of_chunk == 0:
        fail("chunk-of-nothing", file=file)
    if of_stage % of_chunk:
        fail("chunks-of-stage", file=file)
    return of_stage // of_chunk


def check_recompute(inputs: MegatronInputs) -> None:
    """``validate_args``: what recomputation takes beside its granularity."""
    granularity = "selective" if inputs.activations else inputs.granularity
    if inputs.distributed:
        require(inputs.tensor > 1, "distributed-tensor")
        require(granularity == "full", "distributed-full")
        require(inputs.method is not None, "distributed-method")
    if granularity == "selective":
        require(inputs.method is None, "selective-method")
