"""Validate the arguments about layers and recomputation as the frameworks do, with their exceptions."""

from __future__ import annotations

from collections.abc import Sequence

from ms_tune.dialects.megatron.placement import FinalArguments, MegatronInputs, fail, parse_noop, parse_table, require


def recomputed_modules(
    inputs: MegatronInputs, granularity: str | None, method: str | None, number: int | None, allowed: Sequence[str]
) -> tuple[str, ...]:
    """Validate the settings of recomputation; return the modules that selective recomputation recomputes."""
    if granularity == "full":
        if method is None:
            fail("full-method", granularity=granularity)
        if number is None:
            fail("full-number", granularity=granularity, rest=inputs.layers // inputs.stages)
    elif granularity == "selective" and number is not None:
        fail("selective-number", granularity=granularity)
    if granularity is not None and inputs.distributed and inputs.checked("sequence_parallel"):
        fail("distributed-sequence")
    modules = ("core_attn",) if inputs.modules is None else inputs.modules
    if granularity == "selective":
        _check_modules(inputs, modules, allowed)
    if inputs.whole_experts:
        if granularity == "full":
            fail("experts-full")
        modules = modules if "moe" in modules else (*modules, "moe")
    return modules


def _check_modules(inputs: MegatronInputs, modules: Sequence[str], allowed: Sequence[str]) -> None:
    unknown = [one for one in modules if one not in allowed]
    require(not unknown, "modules", unknown=", ".join(unknown))
    if "moe_act" in modules and not inputs.grouped:
        fail("module-grouped")
    if "mla_up_proj" in modules and not inputs.latent:
        fail("module-latent")


def check_split(inputs: MegatronInputs, chunks: int | None) -> None:
    """Check stages of different sizes, and stages that count the embedding or the loss as a layer."""
    uneven = inputs.first is not None or inputs.last is not None
    accounted = inputs.embedding or inputs.loss
    if uneven and accounted:
        fail("uneven-accounted")
    if uneven:
        _uneven(inputs, chunks)
    if accounted:
        _check_accounted(inputs, chunks)


def _uneven(inputs: MegatronInputs, chunks: int | None) -> None:
    layers, stages = inputs.layers, inputs.stages
    for place, number in (("first", inputs.first), ("last", inputs.last)):
        if number is None:
            continue
        if number <= 0:
            fail("uneven-count", place=place)
        if chunks is not None and number % chunks:
            fail("uneven-chunks", place=place, number=number, chunks=chunks)
        layers -= number
        stages -= 1
    if stages == 0:
        fail("uneven-all")
    if layers % stages:
        fail("uneven-middle", layers=layers, stages=stages)
    if chunks is not None and (layers // stages) % chunks:
        fail("uneven-middle-chunks", share=layers // stages, chunks=chunks)


def _check_accounted(inputs: MegatronInputs, chunks: int | None) -> None:
    number = inputs.layers + inputs.embedding + inputs.loss
    if number % inputs.stages:
        fail(f"accounted-by-{'' if chunks is None else 'virtual-'}stages", number=number, inputs=inputs)
    of_stage = number // inputs.stages
    if chunks is not None and of_stage % chunks:
        fail("accounted-chunks", of_stage=of_stage, chunks=chunks)


_MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe")


def validated(inputs: MegatronInputs) -> FinalArguments:
    """Return the arguments after the frameworks' validation."""
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
    modules = recomputed_modules(inputs, granularity, method, number, _MODULES)
    check_split(inputs, chunks)
    if inputs.whole_experts:
        granularity = "selective"
    return FinalArguments(
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
    """Check for features that replace the same function: the program stops while it is imported."""
    if inputs.in_bubble and inputs.in_advance:
        fail("ripipe")
    placing = [bool(inputs.layer_list), inputs.unaligned is not None, inputs.schedule == "dualpipev"]
    if sum(placing) > 1:
        fail("placements")


def _two_stages(inputs: MegatronInputs, chunks: int | None) -> tuple[int | None, int | None]:
    """Apply ``TrainingBasicFeature.post_validate_args``: a virtual pipeline of two stages."""
    bypassed = inputs.stages == 2 and inputs.layers_of_chunk is not None  # noqa: PLR2004 - as in the framework
    if not bypassed:
        return chunks, inputs.layers_of_chunk
    if not inputs.layers_of_chunk:
        return chunks, None
    if inputs.release not in ("2.2", "2.3"):
        _no_list(inputs)
    layers = len(inputs.layer_list.split(",")) if inputs.layer_list else inputs.layers
    found = chunks_of(
        layers // inputs.stages,
        inputs.layers_of_chunk,
        "mindspeed_llm/features_manager/megatron_basic/training_basic.py",
    )
    if inputs.release == "2.3":
        _no_list(inputs)
    if inputs.layers_of_chunk >= layers / inputs.stages:
        fail("whole-stage-of-two")
    return found, inputs.layers_of_chunk


def _no_list(inputs: MegatronInputs) -> None:
    require(not inputs.layer_list, "list-chunk-layers")


def _whole_stages(inputs: MegatronInputs, chunks: int | None, of_chunk: int | None) -> int | None:
    """Apply ``MegatronBasicFeature.validate_args`` of MindSpeed: one chunk means no virtual pipeline."""
    if (of_chunk is None and inputs.chunks is None) or inputs.release == "2.2":
        return None if chunks == 1 else chunks
    if of_chunk is not None and of_chunk * inputs.stages == inputs.layers:
        fail("whole-stage")
    return None if chunks == 1 else chunks


def _layer_list(inputs: MegatronInputs, noop: frozenset[int]) -> str | None:
    """Apply the checks of ``NumLayerListFeature.validate_args``."""
    text = inputs.layer_list
    if not text:
        return None
    length = len(text.split(","))
    checked = inputs.release == "2.2" or inputs.checked("save_model_type") != "hf"
    if checked and length != inputs.stages:
        fail("list-by-stages")
    if inputs.stages <= 1:
        fail("list-one-stage")
    if inputs.layers_of_chunk:
        fail("list-virtual")
    if noop:
        # The call that should warn that the list is disabled lacks its argument, so it fails.
        fail("list-noop")
    return text


def _partial(inputs: MegatronInputs) -> None:
    """Apply the checks of ``RecomputeActivationFeature`` and ``RecomputeNormFeature``: the numbers of layers."""
    asked = (
        ("recompute-activation-function", inputs.activation_layers, "activation_function.py"),
        ("recompute-norm", inputs.norm_layers, "norm_function.py"),
    )
    for name, number, file in asked:
        if number is None:
            continue
        require(number >= 0, "partial-count", file=file, name=name)
        if number > inputs.layers:
            fail("partial-beyond", file=file, name=name, number=number, inputs=inputs)


def _in_bubble(
    inputs: MegatronInputs, chunks: int | None, of_chunk: int | None
) -> tuple[str | None, str | None, int | None]:
    """Apply ``RiPipeSchedulesBubbleFeature.validate_args``, which enables full recomputation itself."""
    granularity = "selective" if inputs.activations else inputs.granularity
    method, number = inputs.method, inputs.number
    if not inputs.in_bubble:
        return granularity, method, number
    expected = inputs.layers // inputs.stages if inputs.by_rank else of_chunk
    require(not number or number == expected, "bubble-number")
    require(inputs.stages > 1 and of_chunk is not None, "bubble-interleaving")
    if not inputs.swap:
        granularity, method = "full", "block"
    elif inputs.release != "2.2":
        fail("bubble-swap")
    if inputs.release != "2.2":
        # MindSpeed disables the overlap for a single chunk, which is not a virtual pipeline (``MegatronBasicFeature.validate_args``).
        require(inputs.overlap and chunks is not None, "bubble-overlap")
    _check_aligned(inputs, "recompute-in-bubble")
    return granularity, method, number if expected is None else expected


def _check_aligned(inputs: MegatronInputs, name: str) -> None:
    """Check that all stages reduce their gradients at the same time."""
    require(inputs.release == "2.2" or inputs.checked("align_grad_reduce") is not False, "bubble-align", name=name)


def _in_advance(inputs: MegatronInputs, method: str | None, number: int | None, of_chunk: int | None) -> bool:
    """Apply the checks of ``RiPipeSchedulesAdvanceFeature.validate_args``."""
    if not inputs.in_advance:
        return False
    require(method != "uniform", "advance-uniform")
    require(bool(number), "advance-number")
    require(inputs.stages > 1 and of_chunk is not None, "advance-interleaving")
    _check_aligned(inputs, "recompute-in-advance")
    return of_chunk == 1


def _table(inputs: MegatronInputs, chunks: int | None, noop: frozenset[int]) -> tuple[tuple[int, ...], ...] | None:
    """Apply the checks of ``UnalignedPipelineFeature.validate_args``; return the table."""
    if inputs.unaligned is None:
        return None
    require(not (inputs.unaligned and noop), "table-noop")
    rows = parse_table(inputs.unaligned)
    require(len(rows) == inputs.stages and bool(rows), "table-by-stages", rows=len(rows), inputs=inputs)
    for row in rows:
        if chunks is None:
            require(len(row) == 1, "table-one-chunk", columns=len(row))
        else:
            require(len(row) == chunks and bool(row), "table-by-chunks", columns=len(row), chunks=chunks)
    total = sum(map(sum, rows))
    require(total <= inputs.layers, "table-sum", total=total, inputs=inputs)
    return rows


def _dualpipev(inputs: MegatronInputs, of_chunk: int | None) -> None:
    """Apply the checks of ``DualpipeVFeature.validate_args``."""
    if inputs.schedule != "dualpipev":
        return
    needed = {
        "fsdp": inputs.release == "2.2" or not inputs.checked("use_custom_fsdp"),
        "reduce": not inputs.checked("overlap_grad_reduce"),
        "untied": inputs.checked("untie_embeddings_and_output_weights"),
        "swap": not inputs.swap,
        "context": inputs.checked("context_parallel_size") in (None, 1),
        "virtual": of_chunk is None,
        "stages": inputs.stages != 1,
        "layers": inputs.layers >= 2 * inputs.stages,
        "batches": inputs.micro_batches is None or inputs.micro_batches >= 2 * inputs.stages - 1,
        "tensor": not inputs.checked("tp_2d"),
    }
    for name, satisfied in needed.items():
        require(satisfied, f"dualpipev-{name}")


def _dense(inputs: MegatronInputs) -> None:
    """Apply the checks of ``TransformerBlockFeature.validate_args``."""
    dense = inputs.dense
    if not dense:
        return
    require(inputs.layers > dense, "dense-count", inputs=inputs, dense=dense)
    require(inputs.stages == 1 or dense < inputs.layers // inputs.stages, "dense-stage")


def _counts(inputs: MegatronInputs, text: str | None) -> tuple[int, ...] | None:
    """Apply the checks of ``core_transformer_config_from_args_wrapper``: the list must add up to the number of layers."""
    if text is None:
        return None
    try:
        counts = tuple(map(int, text.split(",")))
    except ValueError as error:
        fail("list-numbers", error=error)
    if sum(counts[: inputs.stages]) != inputs.layers:
        fail("list-sum", total=sum(counts), inputs=inputs)
    return counts


_ARGUMENTS = "megatron/training/arguments.py"


def megatron_chunks(inputs: MegatronInputs) -> int | None:
    """Return the number of chunks (``validate_args``); MindSpeed-LLM bypasses it for two stages with a virtual pipeline."""
    bypassed = inputs.stages == 2 and inputs.layers_of_chunk is not None  # noqa: PLR2004 - as in the framework
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
    if overlap:
        require(inputs.stages > 1, "interleaved-stages")
    else:
        require(inputs.stages > 2, "interleaved-stages-without-overlap")  # noqa: PLR2004 - as in the framework
    if inputs.chunks is not None:
        return inputs.chunks
    require(not uneven, "uneven-by-ranks")
    number = layers + inputs.embedding + inputs.loss
    require(number % inputs.stages == 0, "layers-by-virtual-stages")
    return chunks_of(number // inputs.stages, by_layers or 0, _ARGUMENTS)


def chunks_of(of_stage: int, of_chunk: int, file: str) -> int:
    """Return the number of chunks of a stage; MindSpeed-LLM also uses this rule."""
    if of_chunk == 0:
        fail("chunk-of-nothing", file=file)
    if of_stage % of_chunk:
        fail("chunks-of-stage", file=file)
    return of_stage // of_chunk


def check_recompute(inputs: MegatronInputs) -> None:
    """Apply the checks of ``validate_args``: requirements of recomputation in addition to its granularity."""
    granularity = "selective" if inputs.activations else inputs.granularity
    if inputs.distributed:
        require(inputs.tensor > 1, "distributed-tensor")
        require(granularity == "full", "distributed-full")
        require(inputs.method is not None, "distributed-method")
    if granularity == "selective":
        require(inputs.method is None, "selective-method")
