"""The arithmetic of parallel sizes, of a training's course and of what recomputation asks for, as ``validate_args`` has them.

Megatron-LM core_r0.8.0 and core_v0.12.1: ``megatron/training/arguments.py``, ``megatron/core/transformer/transformer_config.py``,
``megatron/core/model_parallel_config.py``, ``megatron/core/optimizer_param_scheduler.py``, ``megatron/core/tensor_parallel/utils.py``
(``divide``); MindSpeed-LLM 2.0 to 26.1: ``mindspeed_llm/training/arguments.py``. A check is made where every value in it is known for sure.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ms_tune.dialects.megatron.commands import read_command, read_plan, spell_argument, violation_at
from ms_tune.dialects.megatron.inputs import ARGUMENTS, DESTINATIONS, UNEVEN
from ms_tune.dialects.megatron.recompute import normalize_megatron
from ms_tune.dialects.megatron.write import remedy_changes
from ms_tune.facts.megatron import releases_on
from ms_tune.source.shell.values import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext, Violation
    from ms_tune.dialects.megatron.arguments import ProgramArguments

_TENSOR, _PIPELINE, _CONTEXT = "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"
_EXPERT, _HEADS = "expert_model_parallel_size", "num_attention_heads"
_LAYERS, _CHUNK_LAYERS = DESTINATIONS["layers"], DESTINATIONS["layers_of_chunk"]
_APART = "layerwise_disaggregated_training"
_VIRTUAL = (_CHUNK_LAYERS, "num_virtual_stages_per_pipeline_rank")
_ULYSSES = ("context_parallel_algo", _CONTEXT)
_LAST_OF_MODEL = (_CONTEXT, _PIPELINE, _TENSOR)
_GROUPS, _CHOSEN = "moe_router_num_groups", "moe_router_group_topk"


def find_uneven_world(context: CheckContext) -> Iterator[Violation]:
    """The number of processes has to be a multiple of TP x PP x CP."""
    _, command = read_command(context)
    processes, sizes = command.launch.processes, _sizes(command)
    if processes and sizes and processes % prod(sizes):
        yield violation_at(
            command,
            _LAST_OF_MODEL,
            {"processes": processes, "product": prod(sizes), "sizes": " x ".join(map(str, sizes))},
        )


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


def find_uneven_heads(context: CheckContext) -> Iterator[Violation]:
    """Attention heads, and groups of queries, are split over TP."""
    _, command = read_command(context)
    tensor, found = command.integer(_TENSOR), command.integer(_HEADS)
    if not tensor or not command.surely_not("unaligned_linear") or not command.surely_not("tp_2d"):
        return
    if found and found % tensor:
        yield violation_at(command, (_HEADS,), {"number": found, "tensor": tensor})
    groups = command.integer("num_query_groups")
    latent = command.surely_not("multi_latent_attention") and command.surely_not("multi_head_latent_attention")
    if groups and command.surely("group_query_attention") and latent and groups % tensor:
        yield violation_at(command, ("num_query_groups",), {"number": groups, "tensor": tensor})


def find_uneven_hidden_size(context: CheckContext) -> Iterator[Violation]:
    """Heads share the hidden size where their own width is not named; groups of queries share the heads."""
    _, command = read_command(context)
    found, wide, groups = (command.integer(one) for one in (_HEADS, "hidden_size", "num_query_groups"))
    if not found or found < 0:
        return
    if wide and wide % found and command.surely_not("kv_channels"):
        yield violation_at(command, (_HEADS,), {"number": found, "width": wide})
    latent = command.surely_not("multi_latent_attention") and command.surely_not("multi_head_latent_attention")
    if groups and groups > 0 and found % groups and command.surely("group_query_attention") and latent:
        yield violation_at(command, ("num_query_groups",), {"number": groups, "heads": found}, "groups")


def find_uneven_widths(context: CheckContext) -> Iterator[Violation]:
    """The widths of dense layers and of experts, and the vocabulary that is asked for, are shared out over TP."""
    _, command = read_command(context)
    tensor = command.integer(_TENSOR)
    if not tensor or tensor < 2 or not all(map(command.surely_not, ("tp_2d", "unaligned_linear"))):  # noqa: PLR2004 - 1 is none
        return
    for dest in sorted({*_shared_widths(command), "padded_vocab_size"}):
        number = command.integer(dest)
        if number and number > 0 and number % tensor and command.last(dest):
            yield violation_at(command, (dest,), {"number": number, "tensor": tensor})


def _shared_widths(command: ProgramArguments) -> Iterator[str]:
    if command.surely_not("num_experts") or (command.integer("first_k_dense_replace") or 0) > 0:
        yield "ffn_hidden_size"
    apart = ("moe_tp_extend_ep", "expert_tensor_parallel_size")  # with which TP does not share experts
    earlier = ("deprecated_moe_intermediate_size", "moe_intermediate_size")  # their width's name in releases before
    if command.integer("num_experts") and all(map(command.surely_not, (*apart, *earlier))):
        yield "ffn_hidden_size" if command.surely_not("moe_ffn_hidden_size") else "moe_ffn_hidden_size"


def find_uneven_batch(context: CheckContext) -> Iterator[Violation]:
    """The global batch is a multiple of the micro batch times DP."""
    _, command = read_command(context)
    processes, sizes = command.launch.processes, _sizes(command)
    total, micro = command.integer("global_batch_size"), command.integer("micro_batch_size")
    if not processes or not sizes or processes % prod(sizes) or not total or not micro:
        return
    data = processes // prod(sizes)
    if command.surely_not("rampup_batch_size") and total % (micro * data):
        yield violation_at(
            command, ("global_batch_size",), {"total": total, "micro": micro, "data": data, "product": micro * data}
        )


def find_uneven_micro_batches(context: CheckContext) -> Iterator[Violation]:
    """With virtual stages a step's micro-batches go through the stages in groups of as many as there are: none is smaller."""
    _, command = read_command(context)
    processes, sizes = command.launch.processes, _sizes(command)
    total, micro = command.integer("global_batch_size"), command.integer("micro_batch_size")
    if not processes or not sizes or processes % prod(sizes) or not total or not micro or sizes[1] <= 1:
        return
    virtual = next((one for one in _VIRTUAL if (command.integer(one) or 0) > 0), None)
    others = ("rampup_batch_size", "schedules_method", "moe_fb_overlap", "microbatch_group_size_per_vp_stage")
    number, left = divmod(total, micro * (processes // prod(sizes)))
    if virtual is not None and not left and number % sizes[1] and all(map(command.surely_not, others)):
        yield violation_at(command, ("global_batch_size",), {"number": number, "stages": sizes[1]})


def find_uneven_layers(context: CheckContext) -> Iterator[Violation]:
    """Layers are shared out evenly over stages, and over virtual stages."""
    _, command = read_command(context)
    number, stages = command.integer(_LAYERS), command.integer(_PIPELINE)
    if _goes_through(context) or not number or not stages or not all(map(command.surely_not, UNEVEN)):
        return
    chunk = command.integer(_CHUNK_LAYERS)
    if number % stages:
        yield violation_at(command, (_LAYERS,), {"number": number, "stages": stages})
    elif chunk and (number // stages) % chunk:
        params = {"number": number // stages, "chunk": chunk}
        yield violation_at(command, (_CHUNK_LAYERS,), params, "chunks")


def find_uneven_sequence(context: CheckContext) -> Iterator[Violation]:
    """The sequence is split over CP: in halves of it for the ring."""
    _, command = read_command(context)
    length, size, algorithm = (
        command.integer("seq_length"),
        command.integer(_CONTEXT),
        command.value("context_parallel_algo"),
    )
    whole = 2 if command.release in releases_on("core_v0.12.1") else 1  # its validate_args asks it of every algorithm
    halves = {"megatron_cp_algo": 2, "hybrid_cp_algo": 2, "ulysses_cp_algo": whole}.get(str(algorithm))
    if length and size and size > 1 and halves and length % (halves * size):
        yield violation_at(command, ("seq_length",), {"length": length, "parts": halves * size, "algorithm": algorithm})


def find_uneven_ulysses(context: CheckContext) -> Iterator[Violation]:
    """Ulysses shares the heads of a rank of TP over CP; the hybrid of both over a part of CP that is named, and leaves a ring."""
    _, command = read_command(context)
    size, heads, tensor = (command.integer(one) for one in (_CONTEXT, _HEADS, _TENSOR))
    algorithm = command.value("context_parallel_algo")
    if not size or size < 2 or algorithm not in ("ulysses_cp_algo", "hybrid_cp_algo"):  # noqa: PLR2004 - one is none
        return
    parts, named = size, _ULYSSES
    if algorithm == "hybrid_cp_algo":
        degree = command.integer("ulysses_degree_in_cp")
        if command.surely_not("ulysses_degree_in_cp"):
            yield violation_at(command, _ULYSSES, {}, "degree")
        if not degree or degree < 1:
            return
        if size % degree or size == degree:
            yield violation_at(command, ("ulysses_degree_in_cp",), {"degree": degree, "size": size}, "ring")
            return
        parts, named = degree, ("ulysses_degree_in_cp", _CONTEXT)
    if heads and tensor and tensor > 0 and heads % (parts * tensor):
        yield violation_at(command, named, {"heads": heads, "parts": parts, "tensor": tensor})


def find_uneven_sequence_parts(context: CheckContext) -> Iterator[Violation]:
    """With sequence parallelism TP shares what each rank of CP has of the sequence."""
    _, command = read_command(context)
    length, tensor, parts = (command.integer(one) for one in ("seq_length", _TENSOR, _CONTEXT))
    if not length or not tensor or not parts or length < 1 or parts < 1 or length % parts:
        return
    others = ("variable_seq_lengths", "tp_2d", "unaligned_linear", "encoder_seq_length")
    if not command.surely("sequence_parallel") or not all(map(command.surely_not, others)):
        return
    if tensor > 1 and length // parts % tensor:
        yield violation_at(command, ("seq_length",), {"length": length // parts, "context": parts, "tensor": tensor})


def find_uneven_experts(context: CheckContext) -> Iterator[Violation]:
    """Experts are shared out evenly over EP."""
    _, command = read_command(context)
    number, size = command.integer("num_experts"), command.integer(_EXPERT)
    if number and size and number % size:
        yield violation_at(command, ("num_experts",), {"number": number, "size": size})
    elif size and size > 1 and command.surely_not("num_experts"):
        yield violation_at(command, (_EXPERT,), {"size": size}, "none")


def find_uneven_expert_groups(context: CheckContext) -> Iterator[Violation]:
    """Experts are in equal groups, of which a token's are chosen first: at most as many as there are."""
    _, command = read_command(context)
    chosen, number, every = (command.integer(one) for one in (_CHOSEN, _GROUPS, "num_experts"))
    if not chosen or command.release not in releases_on("core_v0.12.1") or not command.surely_not("deprecated_n_group"):
        return
    if command.surely_not(_GROUPS):
        yield violation_at(command, (_CHOSEN,), {}, "missing")
    elif number and every and every % number:
        yield violation_at(command, (_GROUPS,), {"number": number, "experts": every}, "uneven")
    elif number and chosen > number:
        yield violation_at(command, (_CHOSEN,), {"number": chosen, "groups": number})


def find_long_warm_up(context: CheckContext) -> Iterator[Violation]:
    """The learning rate warms up for fewer iterations, or samples, than it has to come down."""
    _, command = read_command(context)
    for unit in ("iters", "samples"):
        warm, decay = (command.integer(f"lr_{one}_{unit}") for one in ("warmup", "decay"))
        every = command.integer(f"train_{unit}") if command.surely_not(f"lr_decay_{unit}") else decay
        if warm and every and every > 0 and warm >= every and command.surely_not("lr_warmup_fraction"):
            yield violation_at(command, (f"lr_warmup_{unit}",), {"warm": warm, "every": every})


def find_out_of_range(context: CheckContext) -> Iterator[Violation]:
    """Numbers below the least with which a program trains (``least``; ``floors``: 0); shares that are not from 0 to below 1 (``shares``)."""
    _, command = read_command(context)
    least = context.options["least"]
    for dest, low in least.items() if isinstance(least, dict) else ():
        number = command.integer(dest)
        if number is not None and number < low and command.last(dest):
            yield violation_at(command, (dest,), {"number": number, "least": low})
    for dest in context.names("floors"):
        floor = command.value(dest)
        if isinstance(floor, int | float) and floor < 0 and command.last(dest):
            yield violation_at(command, (dest,), {"number": floor, "least": 0})
    for dest in context.names("shares"):
        share = command.value(dest)
        if isinstance(share, float) and not 0 <= share < 1 and command.last(dest):
            yield violation_at(command, (dest,), {"number": share}, "share")


def find_bad_connections(context: CheckContext) -> Iterator[Violation]:
    """``CUDA_DEVICE_MAX_CONNECTIONS`` is 1 where sequence parallelism is on, and not 1 with FSDP; on an NPU, too."""
    _, command = read_command(context)
    given = command.launch.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    text = text_of(given) if given else None
    if text is None:
        return
    tensor = command.integer(_TENSOR)
    sharded = ("use_torch_fsdp2", "use_custom_fsdp")
    if text == "1":
        if any(map(command.surely, sharded)):
            yield violation_at(command, sharded, {"text": text}, "fsdp")
    elif command.surely("sequence_parallel") and tensor and tensor > 1 and all(map(command.surely_not, sharded)):
        yield violation_at(command, ("sequence_parallel",), {"text": text})


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


def find_bad_recompute(context: CheckContext) -> Iterator[Violation]:
    """Full recomputation needs a method and a number; selective recomputation takes none; neither works without granularity."""
    _, command = read_command(context)
    granularity = command.value("recompute_granularity")
    method, number = DESTINATIONS["method"], DESTINATIONS["number"]
    written = [name for name in (method, number) if command.last(name)]
    if granularity in ("full", "selective") and _goes_through(context):
        return
    if granularity == "full" and all(map(command.surely_not, _FILLING)):
        missing = [name for name in (method, number) if command.surely_not(name)]
        yield from (
            violation_at(command, ("recompute_granularity",), {"missing": spell_argument(name)}) for name in missing
        )
    elif granularity == "selective" and command.last(method):
        yield violation_at(command, (method,), {}, "selective")
    elif granularity is None and written and all(map(command.surely_not, _OTHER_RECOMPUTATION)):
        yield violation_at(command, (written[0],), {}, "nothing")


def find_bad_activation_recompute(context: CheckContext) -> Iterator[Violation]:
    """Recomputing the activation function does not go with uniform or selective recomputation."""
    _, command = read_command(context)
    if command.surely("recompute_activation_function"):
        if command.value("recompute_granularity") == "selective":
            yield violation_at(
                command, ("recompute_activation_function",), {"other": "--recompute-granularity selective"}
            )
        elif command.value("recompute_method") == "uniform" and command.value("recompute_granularity") == "full":
            yield violation_at(command, ("recompute_activation_function",), {"other": "--recompute-method uniform"})


def _goes_through(context: CheckContext) -> bool:
    """Whether the rules of layers are known for the release, and take the arguments."""
    found = read_plan(context)
    return found is not None and found[1].failure is None


def find_refused_layers(context: CheckContext) -> Iterator[Violation]:
    """The frameworks refuse the arguments about layers, for a reason that no other check tells."""
    found = read_plan(context)
    if found is None or found[1].failure is None:
        return
    inputs, plan = found
    failure = plan.failure
    error = f"{failure.exception}: {failure.text}" if failure and failure.text else str(failure and failure.exception)
    if any(True for check in (find_uneven_layers, find_bad_recompute) for _ in check(context)):
        return
    changes = remedy_changes(inputs, normalize_megatron) or {}
    _, command = read_command(context)
    names = [*(ARGUMENTS[field] for field in changes), "--num-layers"]
    yield violation_at(command, names, {"error": error})
