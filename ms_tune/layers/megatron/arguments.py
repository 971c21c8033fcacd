"""What Megatron-LM's ``validate_args`` makes of the arguments that place and recompute layers.

core_v0.12.1, ``megatron/training/arguments.py``, in its order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.layers.megatron.refusal import fail, require

if TYPE_CHECKING:
    from ms_tune.layers.megatron.inputs import MegatronInputs

_ARGUMENTS = "megatron/training/arguments.py"


def megatron_chunks(inputs: MegatronInputs) -> int | None:
    """``validate_args``: how many chunks; MindSpeed-LLM keeps two stages with a virtual pipeline away from it."""
    bypassed = inputs.stages == 2 and inputs.layers_of_chunk is not None  # noqa: PLR2004 - as the framework has it
    by_layers = None if bypassed else inputs.layers_of_chunk
    overlap = inputs.overlap and not bypassed
    layers = len(inputs.layer_list.split(",")) if inputs.layer_list else inputs.layers
    both = by_layers is not None and inputs.chunks is not None
    require(
        not both,
        _ARGUMENTS,
        "--num-layers-per-virtual-pipeline-stage and --num-virtual-stages-per-pipeline-rank cannot be set at the same time",
        "one-of-both",
    )
    uneven = inputs.first is not None or inputs.last is not None
    if by_layers is None and inputs.chunks is None:
        if not uneven:
            require(
                (layers + inputs.embedding + inputs.loss) % inputs.stages == 0,
                _ARGUMENTS,
                "Number of layers should be divisible by the pipeline-model-parallel size",
                "layers-by-stages",
            )
        return None
    _interleaved(inputs, overlap=overlap)
    if inputs.chunks is not None:
        return inputs.chunks
    require(
        not uneven,
        _ARGUMENTS,
        "please use --num-virtual-stages-per-pipeline-rank to specify virtual pipeline parallel degree when enable uneven "
        "pipeline parallelism",
        "uneven-by-ranks",
    )
    number = layers + inputs.embedding + inputs.loss
    require(
        number % inputs.stages == 0,
        _ARGUMENTS,
        "number of layers of the model must be divisible pipeline model parallel size",
        "layers-by-stages",
    )
    return chunks_of(number // inputs.stages, by_layers or 0, "AssertionError", _ARGUMENTS)


def _interleaved(inputs: MegatronInputs, *, overlap: bool) -> None:
    if overlap:
        require(
            inputs.stages > 1,
            _ARGUMENTS,
            "When interleaved schedule is used, pipeline-model-parallel size should be greater than 1",
            "interleaved-stages",
        )
    else:
        require(
            inputs.stages > 2,  # noqa: PLR2004 - as the framework has it
            _ARGUMENTS,
            "When interleaved schedule is used and p2p communication overlap is disabled, pipeline-model-parallel size should "
            "be greater than 2 to avoid having multiple p2p sends and recvs between same 2 ranks per communication batch",
            "interleaved-stages",
        )


def chunks_of(of_stage: int, of_chunk: int, exception: str, file: str) -> int:
    """How many chunks of so many layers a stage has; MindSpeed-LLM asks it with an exception of its own."""
    if of_chunk == 0:
        fail(file, "ZeroDivisionError", "integer modulo by zero", "chunk-of-nothing")
    if of_stage % of_chunk:
        fail(
            file,
            exception,
            "number of layers per pipeline stage must be divisible number of layers per virtual pipeline stage",
            "chunks-of-stage",
        )
    return of_stage // of_chunk


def check_recompute(inputs: MegatronInputs) -> None:
    """``validate_args``: what recomputation takes beside its granularity."""
    granularity = "selective" if inputs.activations else inputs.granularity
    if inputs.distributed:
        require(
            inputs.tensor > 1,
            _ARGUMENTS,
            "can distribute recomputed activations only across tensor model parallel groups",
            "distributed-tensor",
        )
        require(
            granularity == "full",
            _ARGUMENTS,
            "distributed recompute activations is only application to full recompute granularity",
            "distributed-full",
        )
        require(
            inputs.method is not None,
            _ARGUMENTS,
            "for distributed recompute activations to work you need to use a recompute method ",
            "full-method",
        )
    if granularity == "selective":
        require(
            inputs.method is None,
            _ARGUMENTS,
            "recompute method is not yet supported for selective recomputing granularity",
            "selective-method",
        )
