"""Checks of the arithmetic of parallel sizes, and of options that do not go together, as ``validate_args`` has them.

Megatron-LM core_r0.8.0 and core_v0.12.1, ``megatron/training/arguments.py`` and ``megatron/core/transformer/transformer_config.py``;
MindSpeed-LLM 2.0 to 26.1, ``mindspeed_llm/training/arguments.py``. A check is made where every value in it is known for sure.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.facts.megatron import releases_on
from ms_tune.lint.checks.megatron import command_in, plan_in
from ms_tune.source.shell.values import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.dialects.megatron.arguments import ProgramArguments

_TENSOR, _PIPELINE, _CONTEXT = "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"
_EXPERT, _LAYERS, _HEADS = "expert_model_parallel_size", "num_layers", "num_attention_heads"
# What places layers otherwise than in equal shares.
_UNEVEN = (
    *("num_layer_list", "noop_layers", "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"),
    *("pipeline_num_transformer_layers", "account_for_embedding_in_pipeline_split", "encoder_num_layers"),
    *(
        "account_for_loss_in_pipeline_split",
        "unaligned_pipeline",
        "standalone_embedding_stage",
        "schedules_method",
        "mtp_num_layers",
    ),
)


def world(context: CheckContext) -> Iterator[Violation]:
    """The number of processes has to be a multiple of TP x PP x CP."""
    _, command = command_in(context)
    processes, sizes = command.launch.processes, _sizes(command)
    if processes and sizes and processes % prod(sizes):
        yield at(
            command,
            _LAST_OF_MODEL,
            {"processes": processes, "product": prod(sizes), "sizes": " x ".join(map(str, sizes))},
        )


def heads(context: CheckContext) -> Iterator[Violation]:
    """Attention heads, and groups of queries, are split over TP."""
    _, command = command_in(context)
    tensor, found = command.integer(_TENSOR), command.integer(_HEADS)
    if not tensor or not command.surely_not("unaligned_linear") or not command.surely_not("tp_2d"):
        return
    if found and found % tensor:
        yield at(command, (_HEADS,), {"number": found, "tensor": tensor})
    groups = command.integer("num_query_groups")
    latent = command.surely_not("multi_latent_attention") and command.surely_not("multi_head_latent_attention")
    if groups and command.surely("group_query_attention") and latent and groups % tensor:
        yield at(command, ("num_query_groups",), {"number": groups, "tensor": tensor})


def width(context: CheckContext) -> Iterator[Violation]:
    """Heads share the hidden size where their own width is not named; groups of queries share the heads."""
    _, command = command_in(context)
    found, wide, groups = (command.integer(one) for one in (_HEADS, "hidden_size", "num_query_groups"))
    if not found or found < 0:
        return
    if wide and wide % found and command.surely_not("kv_channels"):
        yield at(command, (_HEADS,), {"number": found, "width": wide})
    latent = command.surely_not("multi_latent_attention") and command.surely_not("multi_head_latent_attention")
    if groups and groups > 0 and found % groups and command.surely("group_query_attention") and latent:
        yield at(command, ("num_query_groups",), {"number": groups, "heads": found}, "groups")


def batch(context: CheckContext) -> Iterator[Violation]:
    """The global batch is a multiple of the micro batch times DP."""
    _, command = command_in(context)
    processes, sizes = command.launch.processes, _sizes(command)
    total, micro = command.integer("global_batch_size"), command.integer("micro_batch_size")
    if not processes or not sizes or processes % prod(sizes) or not total or not micro:
        return
    data = processes // prod(sizes)
    if command.surely_not("rampup_batch_size") and total % (micro * data):
        yield at(
            command, ("global_batch_size",), {"total": total, "micro": micro, "data": data, "product": micro * data}
        )


def interleaved(context: CheckContext) -> Iterator[Violation]:
    """With virtual stages a step's micro-batches go through the stages in groups of as many as there are: none is smaller."""
    _, command = command_in(context)
    processes, sizes = command.launch.processes, _sizes(command)
    total, micro = command.integer("global_batch_size"), command.integer("micro_batch_size")
    if not processes or not sizes or processes % prod(sizes) or not total or not micro or sizes[1] <= 1:
        return
    virtual = next((one for one in _VIRTUAL if (command.integer(one) or 0) > 0), None)
    others = ("rampup_batch_size", "schedules_method", "moe_fb_overlap", "microbatch_group_size_per_vp_stage")
    number, left = divmod(total, micro * (processes // prod(sizes)))
    if virtual is not None and not left and number % sizes[1] and all(map(command.surely_not, others)):
        yield at(command, ("global_batch_size",), {"number": number, "stages": sizes[1]})


def layers(context: CheckContext) -> Iterator[Violation]:
    """Layers are shared out evenly over stages, and over virtual stages."""
    _, command = command_in(context)
    number, stages = command.integer(_LAYERS), command.integer(_PIPELINE)
    if _goes_through(context) or not number or not stages or not all(map(command.surely_not, _UNEVEN)):
        return
    chunk = command.integer("num_layers_per_virtual_pipeline_stage")
    if number % stages:
        yield at(command, (_LAYERS,), {"number": number, "stages": stages})
    elif chunk and (number // stages) % chunk:
        params = {"number": number // stages, "chunk": chunk}
        yield at(command, ("num_layers_per_virtual_pipeline_stage",), params, "chunks")


def sequence(context: CheckContext) -> Iterator[Violation]:
    """The sequence is split over CP: in halves of it for the ring."""
    _, command = command_in(context)
    length, size, algorithm = (
        command.integer("seq_length"),
        command.integer(_CONTEXT),
        command.value("context_parallel_algo"),
    )
    whole = 2 if command.release in releases_on("core_v0.12.1") else 1  # its validate_args asks it of every algorithm
    halves = {"megatron_cp_algo": 2, "hybrid_cp_algo": 2, "ulysses_cp_algo": whole}.get(str(algorithm))
    if length and size and size > 1 and halves and length % (halves * size):
        yield at(command, ("seq_length",), {"length": length, "parts": halves * size, "algorithm": algorithm})


def shared_heads(context: CheckContext) -> Iterator[Violation]:
    """Ulysses shares the heads of a rank of TP over CP; the hybrid of both over a part of CP that is named, and leaves a ring."""
    _, command = command_in(context)
    size, heads, tensor = (command.integer(one) for one in (_CONTEXT, _HEADS, _TENSOR))
    algorithm = command.value("context_parallel_algo")
    if not size or size < 2 or algorithm not in ("ulysses_cp_algo", "hybrid_cp_algo"):  # noqa: PLR2004 - one is none
        return
    parts, named = size, _ULYSSES
    if algorithm == "hybrid_cp_algo":
        degree = command.integer("ulysses_degree_in_cp")
        if command.surely_not("ulysses_degree_in_cp"):
            yield at(command, _ULYSSES, {}, "degree")
        if not degree or degree < 1:
            return
        if size % degree or size == degree:
            yield at(command, ("ulysses_degree_in_cp",), {"degree": degree, "size": size}, "ring")
            return
        parts, named = degree, ("ulysses_degree_in_cp", _CONTEXT)
    if heads and tensor and tensor > 0 and heads % (parts * tensor):
        yield at(command, named, {"heads": heads, "parts": parts, "tensor": tensor})


def shared_sequence(context: CheckContext) -> Iterator[Violation]:
    """With sequence parallelism TP shares what each rank of CP has of the sequence."""
    _, command = command_in(context)
    length, tensor, parts = (command.integer(one) for one in ("seq_length", _TENSOR, _CONTEXT))
    if not length or not tensor or not parts or length < 1 or parts < 1 or length % parts:
        return
    others = ("variable_seq_lengths", "tp_2d", "unaligned_linear", "encoder_seq_length")
    if not command.surely("sequence_parallel") or not all(map(command.surely_not, others)):
        return
    if tensor > 1 and length // parts % tensor:
        yield at(command, ("seq_length",), {"length": length // parts, "context": parts, "tensor": tensor})


def experts(context: CheckContext) -> Iterator[Violation]:
    """Experts are shared out evenly over EP."""
    _, command = command_in(context)
    number, size = command.integer("num_experts"), command.integer(_EXPERT)
    if number and size and number % size:
        yield at(command, ("num_experts",), {"number": number, "size": size})
    elif size and size > 1 and command.surely_not("num_experts"):
        yield at(command, (_EXPERT,), {"size": size}, "none")


def chosen(context: CheckContext) -> Iterator[Violation]:
    """A token goes to as many experts as there are, at most."""
    _, command = command_in(context)
    number, every = command.integer("moe_router_topk"), command.integer("num_experts")
    if number and every and 0 < every < number:
        yield at(command, ("moe_router_topk",), {"number": number, "experts": every})


def positions(context: CheckContext) -> Iterator[Violation]:
    """There are at least as many position embeddings as the sequence is long."""
    _, command = command_in(context)
    length, most = command.integer("seq_length"), command.integer("max_position_embeddings")
    if length and most and most < length:
        yield at(command, ("max_position_embeddings",), {"length": length, "most": most})


def rates(context: CheckContext) -> Iterator[Violation]:
    """The smallest learning rate is not above the largest."""
    _, command = command_in(context)
    low, high = command.value("min_lr"), command.value("lr")
    if isinstance(low, float) and isinstance(high, float) and low > high:
        yield at(command, ("min_lr",), {"low": low, "high": high})


def recompute(context: CheckContext) -> Iterator[Violation]:
    """Full recomputation needs a method and a number; selective recomputation takes none; neither works without granularity."""
    _, command = command_in(context)
    granularity = command.value("recompute_granularity")
    method, number = "recompute_method", "recompute_num_layers"
    written = [name for name in (method, number) if command.last(name)]
    if granularity in ("full", "selective") and _goes_through(context):
        return
    if granularity == "full" and all(map(command.surely_not, _FILLING)):
        missing = [name for name in (method, number) if command.surely_not(name)]
        yield from (at(command, ("recompute_granularity",), {"missing": argument(name)}) for name in missing)
    elif granularity == "selective" and command.last(method):
        yield at(command, (method,), {}, "selective")
    elif granularity is None and written and all(map(command.surely_not, _OTHER_RECOMPUTATION)):
        yield at(command, (written[0],), {}, "nothing")


def _goes_through(context: CheckContext) -> bool:
    """Whether the rules of layers are known for the release, and take the arguments."""
    found = plan_in(context)
    return found is not None and found[1].failure is None


# What sets the method and the number of layers itself.
_FILLING = ("recompute_in_bubble", "adaptive_memory_optimization", "adaptive_recompute_device_swap")
# What takes the method or the number of layers for itself.
_OTHER_RECOMPUTATION = (
    *(
        "recompute_activation_function",
        "recompute_norm",
        "swap_attention",
        "recompute_activations",
        "adaptive_memory_optimization",
    ),
    *("recompute_in_advance", "recompute_in_bubble", "enable_recompute_layers_per_pp_rank", "checkpoint_activations"),
)


def activation(context: CheckContext) -> Iterator[Violation]:
    """Recomputing the activation function does not go with uniform or selective recomputation."""
    _, command = command_in(context)
    if command.surely("recompute_activation_function"):
        if command.value("recompute_granularity") == "selective":
            yield at(command, ("recompute_activation_function",), {"other": "--recompute-granularity selective"})
        elif command.value("recompute_method") == "uniform" and command.value("recompute_granularity") == "full":
            yield at(command, ("recompute_activation_function",), {"other": "--recompute-method uniform"})


def sequence_parallel(context: CheckContext) -> Iterator[Violation]:
    """Without TP there is no sequence parallelism: the option is switched off."""
    _, command = command_in(context)
    if command.surely("sequence_parallel") and command.value(_TENSOR) == 1 and command.surely_not("tp_2d"):
        yield at(command, ("sequence_parallel",), {})


def ranges(context: CheckContext) -> Iterator[Violation]:
    """Numbers below the least with which a program trains (``least``; ``floors``: 0); shares that are not from 0 to below 1 (``shares``)."""
    _, command = command_in(context)
    least = context.options["least"]
    for dest, low in least.items() if isinstance(least, dict) else ():
        number = command.integer(dest)
        if number is not None and number < low and command.last(dest):
            yield at(command, (dest,), {"number": number, "least": low})
    for dest in context.names("floors"):
        floor = command.value(dest)
        if isinstance(floor, int | float) and floor < 0 and command.last(dest):
            yield at(command, (dest,), {"number": floor, "least": 0})
    for dest in context.names("shares"):
        share = command.value(dest)
        if isinstance(share, float) and not 0 <= share < 1 and command.last(dest):
            yield at(command, (dest,), {"number": share}, "share")


def grouped(context: CheckContext) -> Iterator[Violation]:
    """A number of groups of queries counts with ``--group-query-attention`` alone."""
    _, command = command_in(context)
    groups, heads = command.integer("num_query_groups"), command.integer(_HEADS)
    if not all(
        map(command.surely_not, ("group_query_attention", "multi_latent_attention", "multi_head_latent_attention"))
    ):
        return
    if groups and heads and groups != heads and command.last("num_query_groups"):
        yield at(command, ("num_query_groups",), {"groups": groups, "heads": heads})


def precision(context: CheckContext) -> Iterator[Violation]:
    """One precision, not two."""
    _, command = command_in(context)
    if command.surely("fp16") and command.surely("bf16"):
        yield at(command, ("fp16",), {})


def reused(context: CheckContext) -> Iterator[Violation]:
    """``--reuse-fp32-param`` works with bf16 alone."""
    _, command = command_in(context)
    if command.surely("reuse_fp32_param") and command.surely_not("bf16"):
        yield at(command, ("reuse_fp32_param",), {})


def connections(context: CheckContext) -> Iterator[Violation]:
    """``CUDA_DEVICE_MAX_CONNECTIONS`` is 1 where sequence parallelism is on, and not 1 with FSDP; on an NPU, too."""
    _, command = command_in(context)
    given = command.launch.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    text = text_of(given) if given else None
    if text is None:
        return
    tensor = command.integer(_TENSOR)
    sharded = ("use_torch_fsdp2", "use_custom_fsdp")
    if text == "1":
        if any(map(command.surely, sharded)):
            yield at(command, sharded, {"text": text}, "fsdp")
    elif command.surely("sequence_parallel") and tensor and tensor > 1 and all(map(command.surely_not, sharded)):
        yield at(command, ("sequence_parallel",), {"text": text})


def _sizes(command: ProgramArguments) -> tuple[int, ...] | None:
    """TP, PP and CP; None if one of them is unknown or not positive, or if something else takes part."""
    found = [command.integer(name) for name in (_TENSOR, _PIPELINE, _CONTEXT)]
    # Edge and cloud each have processes and TP of their own (``features_manager/layerwise_disaggregated_training`` of MindSpeed-LLM).
    others = (*("encoder_pipeline_model_parallel_size", "pipeline_model_parallel_split_rank"), "tp_2d", _APART)
    sizes = tuple(one for one in found if one is not None and one > 0)
    return (
        sizes
        if len(sizes) == len(found)
        and all(command.value(name) in (0, None, False) or command.surely_not(name) for name in others)
        else None
    )


_APART = "layerwise_disaggregated_training"
_VIRTUAL = ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank")
_ULYSSES = ("context_parallel_algo", _CONTEXT)
_LAST_OF_MODEL = (_CONTEXT, _PIPELINE, _TENSOR)


def argument(dest: str) -> str:
    """The name of an argument by its destination, as most have it."""
    return f"--{dest.replace('_', '-')}"


def at(
    command: ProgramArguments, dests: tuple[str, ...], params: Mapping[str, object], message: str = "default"
) -> Violation:
    """A violation at the first of some arguments that is written."""
    given = next((one for one in map(command.last, dests) if one), None)
    return Violation((given.name,) if given else (), message, params, at_key=given is not None and not given.values)
