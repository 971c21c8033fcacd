"""What the frameworks refuse before a layer is built, in their own order: the first refusal is the one that is told.

MindSpeed-LLM 2.2 to 26.1: the features' ``pre_validate_args``, Megatron-LM's ``validate_args`` (core_v0.12.1,
``megatron/training/arguments.py``), the features' ``post_validate_args`` and ``validate_args`` (MindSpeed and MindSpeed-LLM,
``features_manager``), and ``TransformerConfig.__post_init__`` (``megatron/core/transformer/transformer_config.py``). Only what
concerns the layers is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.layers.megatron.arguments import check_recompute, chunks_of, megatron_chunks
from ms_tune.layers.megatron.inputs import Settled
from ms_tune.layers.megatron.layouts import parse_noop, parse_table
from ms_tune.layers.megatron.post_init import check_split, recomputed_modules
from ms_tune.layers.megatron.refusal import fail, require

if TYPE_CHECKING:
    from ms_tune.layers.megatron.inputs import MegatronInputs

_FEATURES = "mindspeed/features_manager"
_LLM = "mindspeed_llm/features_manager"
_MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe")


def validated(inputs: MegatronInputs) -> Settled:
    """What the frameworks make of the arguments.

    Raises:
        FrameworkStop: They refuse them.
    """
    _check_patches(inputs)
    chunks = megatron_chunks(inputs)
    check_recompute(inputs)
    chunks, layers_of_chunk = _two_stages(inputs, chunks)
    noop = parse_noop(inputs)
    chunks = _whole_stages(inputs, chunks, layers_of_chunk)
    layer_list = _layer_list(inputs, noop)
    _partial(inputs)
    granularity, method, number = _in_bubble(inputs, chunks, layers_of_chunk)
    in_advance = _in_advance(inputs, method, number, layers_of_chunk)
    table = _table(inputs, chunks, noop)
    _dualpipev(inputs, layers_of_chunk)
    _dense(inputs)
    modules = _config(inputs, granularity, method, number, chunks)
    if inputs.whole_experts:
        granularity = "selective"
    return Settled(
        chunks=chunks,
        layers_of_chunk=layers_of_chunk,
        layer_list=_counts(inputs, layer_list),
        noop=noop,
        table=table,
        granularity=granularity,
        method=method,
        number=number,
        modules=modules,
        spare_last=inputs.in_advance,
        in_advance=in_advance,
    )


def _check_patches(inputs: MegatronInputs) -> None:
    """Two features that replace the same function stop the program while it is imported."""
    if inputs.in_bubble and inputs.in_advance:
        text = "the patch of get_forward_backward_func exist !"
        fail("mindspeed/patch_utils.py", "RuntimeError", text, "ripipe")
    placing = [bool(inputs.layer_list), inputs.unaligned is not None, inputs.schedule == "dualpipev"]
    if sum(placing) > 1:
        fail(
            "mindspeed/patch_utils.py",
            "RuntimeError",
            "the patch of get_num_layers_to_build exist !",
            "placements",
        )


def _two_stages(inputs: MegatronInputs, chunks: int | None) -> tuple[int | None, int | None]:
    """``TrainingBasicFeature.post_validate_args``: a virtual pipeline of two stages."""
    bypassed = inputs.stages == 2 and inputs.layers_of_chunk is not None  # noqa: PLR2004 - as the framework has it
    if not bypassed:
        return chunks, inputs.layers_of_chunk
    if not inputs.layers_of_chunk:
        return chunks, None
    file = f"{_LLM}/megatron_basic/training_basic.py"
    if inputs.release not in ("2.2", "2.3"):
        _no_list(inputs, file)
    layers = len(inputs.layer_list.split(",")) if inputs.layer_list else inputs.layers
    found = chunks_of(layers // inputs.stages, inputs.layers_of_chunk, "AssertionError", file)
    if inputs.release == "2.3":
        _no_list(inputs, file)
    if inputs.layers_of_chunk >= layers / inputs.stages:
        fail(
            file,
            "ValueError",
            "Num of layers in vpp stage should be less than pp stage, please turn down "
            "args.num_layers_per_virtual_pipeline_stage.",
            "whole-stage",
        )
    return found, inputs.layers_of_chunk


def _no_list(inputs: MegatronInputs, file: str) -> None:
    text = "num_layers_per_virtual_pipeline_stage is not support work with num_layer_list"
    require(not inputs.layer_list, file, text, "list-virtual")


def _whole_stages(inputs: MegatronInputs, chunks: int | None, of_chunk: int | None) -> int | None:
    """``MegatronBasicFeature.validate_args`` of MindSpeed: one chunk is none."""
    if (of_chunk is None and inputs.chunks is None) or inputs.release == "2.2":
        return None if chunks == 1 else chunks
    if of_chunk is not None and of_chunk * inputs.stages == inputs.layers:
        fail(
            f"{_FEATURES}/megatron_basic/megatron_basic.py",
            "ValueError",
            "num_layers_per_virtual_pipeline_stage * pipeline_model_parallel_size == num_layers, please close "
            "--num-layers-per-virtual-pipeline-stage",
            "whole-stage",
        )
    return None if chunks == 1 else chunks


def _layer_list(inputs: MegatronInputs, noop: frozenset[int]) -> str | None:
    """``NumLayerListFeature.validate_args``."""
    text = inputs.layer_list
    if not text:
        return None
    file = f"{_LLM}/pipeline_parallel/num_layer_list.py"
    length = len(text.split(","))
    checked = inputs.release == "2.2" or inputs.other("save_model_type") != "hf"
    if checked and length != inputs.stages:
        fail(file, "ValueError", "len(args.num_layer_list) != args.pipeline_model_parallel_size", "list-by-stages")
    if inputs.stages <= 1:
        fail(file, "ValueError", "Dynamic pipeline model should work with pipeline parallel.", "list-one-stage")
    if inputs.layers_of_chunk:
        fail(
            file,
            "ValueError",
            "Dynamic pipeline model and virtual pipeline cannot be enabled at the same time.",
            "list-virtual",
        )
    if noop:
        # What is to say that the list is switched off is called without what it is to say.
        text = "print_rank0_by_args() missing 1 required positional argument: 'message'"
        fail(file, "TypeError", text, "list-noop")
    return text


def _partial(inputs: MegatronInputs) -> None:
    """``RecomputeActivationFeature`` and ``RecomputeNormFeature``: the numbers of layers."""
    asked = (
        ("recompute-activation-function", inputs.activation_layers, "activation_function.py"),
        ("recompute-norm", inputs.norm_layers, "norm_function.py"),
    )
    for name, number, file in asked:
        if number is None:
            continue
        require(
            number >= 0,
            f"{_FEATURES}/recompute/{file}",
            f"--{name}-num-layers cannot be less than 0.",
            "partial-count",
        )
        if number > inputs.layers:
            fail(
                f"{_FEATURES}/recompute/{file}",
                "ValueError",
                f"--{name}-num-layers ({number}) cannot be greater than --num-layers ({inputs.layers}).",
                "partial-count",
            )


def _in_bubble(
    inputs: MegatronInputs, chunks: int | None, of_chunk: int | None
) -> tuple[str | None, str | None, int | None]:
    """``RiPipeSchedulesBubbleFeature.validate_args``: it switches full recomputation on itself."""
    granularity = "selective" if inputs.activations else inputs.granularity
    method, number = inputs.method, inputs.number
    if not inputs.in_bubble:
        return granularity, method, number
    file = f"{_FEATURES}/pipeline_parallel/ripipe_schedules_feature.py"
    expected = inputs.layers // inputs.stages if inputs.by_rank else of_chunk
    require(
        not number or number == expected,
        file,
        "recompute_num_layers must be None or 0 when using recompute_in_bubble",
        "bubble-number",
    )
    require(
        inputs.stages > 1 and of_chunk is not None,
        file,
        "recompute_in_bubble only support pipelining with interleaving",
        "needs-interleaving",
    )
    if not inputs.swap:
        granularity, method = "full", "block"
    elif inputs.release != "2.2":
        fail(file, "AssertionError", "recompute-in-bubble dont support swap-attention", "bubble-swap")
    if inputs.release != "2.2":
        # MindSpeed switches the overlap off where one chunk is none (``MegatronBasicFeature.validate_args``).
        require(
            inputs.overlap and chunks is not None,
            file,
            "recompute_in_bubble does not yet support scenarios where overlap_p2p_comm is False, as it has not been made "
            "compatible.",
            "bubble-overlap",
        )
    _aligned(inputs, "recompute-in-bubble", file)
    return granularity, method, number if expected is None else expected


def _aligned(inputs: MegatronInputs, name: str, file: str) -> None:
    """Gradients are reduced by all stages at once."""
    require(
        inputs.release == "2.2" or inputs.other("align_grad_reduce") is not False,
        file,
        f"Due to compatibility limitations between nanopipe and ripipe, {name} can only be used in scenarios where "
        "align_grad_reduce is True.",
        "bubble-align",
    )


def _in_advance(inputs: MegatronInputs, method: str | None, number: int | None, of_chunk: int | None) -> bool:
    """``RiPipeSchedulesAdvanceFeature.validate_args``."""
    if not inputs.in_advance:
        return False
    file = f"{_FEATURES}/pipeline_parallel/ripipe_schedules_feature.py"
    require(
        method != "uniform",
        file,
        "recompute_in_advance does not support uniform recompute_method",
        "advance-uniform",
    )
    require(
        bool(number),
        file,
        "recompute_num_layers can not be None or 0 when using recompute_in_advance",
        "advance-number",
    )
    require(
        inputs.stages > 1 and of_chunk is not None,
        file,
        "recompute_in_advance only support pipelining with interleaving",
        "needs-interleaving",
    )
    _aligned(inputs, "recompute-in-advance", file)
    return of_chunk == 1


def _table(inputs: MegatronInputs, chunks: int | None, noop: frozenset[int]) -> tuple[tuple[int, ...], ...] | None:
    """``UnalignedPipelineFeature.validate_args``."""
    if inputs.unaligned is None:
        return None
    file = f"{_FEATURES}/pipeline_parallel/unaligned_pineline_feature.py"
    name = "pipeline_num_transformer_layers"
    require(
        not (inputs.unaligned and noop),
        file,
        f"{name} and noop_layers are incompatible.",
        "table-noop",
    )
    rows = parse_table(inputs.unaligned, file)
    require(
        len(rows) == inputs.stages and bool(rows),
        file,
        f"{name}' length{len(rows)} should equal to pipeline_model_parallel_size{inputs.stages}.",
        "table-by-stages",
    )
    for row in rows:
        if chunks is None:
            require(len(row) == 1, file, f"vpp_layers' length: {len(row)} should equal to 1.", "table-by-chunks")
        else:
            require(
                len(row) == chunks and bool(row),
                file,
                f"vpp_layers' length: {len(row)} in {name}should equal to virtual_pipeline_model_parallel_size: {chunks}.",
                "table-by-chunks",
            )
    total = sum(map(sum, rows))
    require(
        total <= inputs.layers,
        file,
        f"{name}' sum{total}should be smaller than num_layers{inputs.layers}",
        "table-sum",
    )
    return rows


def _dualpipev(inputs: MegatronInputs, of_chunk: int | None) -> None:
    """``DualpipeVFeature.validate_args``."""
    if inputs.schedule != "dualpipev":
        return
    file = f"{_FEATURES}/pipeline_parallel/dualpipev_feature.py"
    needed = (
        (
            not (inputs.release != "2.2" and inputs.other("use_custom_fsdp")),
            "use_custom_fsdp are incompatible.",
            "The dualpipev and ",
        ),
        (not inputs.other("overlap_grad_reduce"), "overlap_grad_reduce are incompatible.", "The dualpipev and "),
        (
            bool(inputs.other("untie_embeddings_and_output_weights")),
            "untie_embeddings_and_output_weights.",
            "The dualpipev requires ",
        ),
        (not inputs.swap, "swap_attention are incompatible.", "The dualpipev and "),
        (
            inputs.other("context_parallel_size") in (None, 1),
            "context_parallel are incompatible.",
            "The dualpipev and ",
        ),
        (of_chunk is None, "virtual_pipeline are incompatible.", "The dualpipev and "),
        (inputs.stages != 1, "pipeline_model_parallel_size should be larger than 1 with dualpipev schedules", ""),
        (
            inputs.layers >= 2 * inputs.stages,
            "number of layers must be at least 2*pipeline_model_parallel_size in dualpipe",
            "",
        ),
        (
            inputs.micro_batches is None or inputs.micro_batches >= 2 * inputs.stages - 1,
            "num_micro_batch should more than pipeline_model_parallel_size * 2 - 1",
            "",
        ),
        (not inputs.other("tp_2d"), "tp_2d are incompatible.", "The dualpipev and "),
    )
    for holds, text, ahead in needed:
        require(holds, file, ahead + text, "dualpipev")


def _dense(inputs: MegatronInputs) -> None:
    """``TransformerBlockFeature.validate_args``."""
    dense = inputs.dense
    if not dense:
        return
    file = f"{_LLM}/transformer/transformer_block.py"
    require(
        inputs.layers > dense,
        file,
        f"Num-layer ({inputs.layers}) must be greater than first-k-dense-replace ({dense}) when first-k-dense-replace is set.",
        "dense-count",
    )
    require(
        inputs.stages == 1 or dense < inputs.layers // inputs.stages,
        file,
        "When using first-k-dense-replace, it is not allowed for all layers within a pp stage to be dense layers.",
        "dense-stage",
    )


def _config(
    inputs: MegatronInputs, granularity: str | None, method: str | None, number: int | None, chunks: int | None
) -> tuple[str, ...]:
    """``TransformerConfig.__post_init__``: recompute, then uneven stages; what selective recomputation repeats."""
    modules = recomputed_modules(inputs, granularity, method, number, _MODULES)
    check_split(inputs, chunks)
    return modules


def _counts(inputs: MegatronInputs, text: str | None) -> tuple[int, ...] | None:
    """``core_transformer_config_from_args_wrapper``: the list adds up to the number of layers."""
    if text is None:
        return None
    file = "mindspeed_llm/training/arguments.py"
    try:
        counts = tuple(map(int, text.split(",")))
    except ValueError as error:
        fail(file, "ValueError", str(error), "list-numbers")
    if sum(counts[: inputs.stages]) != inputs.layers:
        fail(
            file,
            "ValueError",
            f"Incorrect num_layer_list config since its sum({sum(counts)} is unequal to total num layers({inputs.layers}).",
            "list-sum",
        )
    return counts
