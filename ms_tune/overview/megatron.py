"""The sizes of a Megatron program's model in its arguments, for the closed forms of :mod:`ms_tune.estimate.megatron`.

Which layers lie where, and which are recomputed, is what the release makes of the arguments (:mod:`ms_tune.layers.megatron`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.config.model import (
    Batch,
    DType,
    Experts,
    LatentAttention,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    Sharding,
    TrainingConfig,
)
from ms_tune.dryrun.request import Pipeline
from ms_tune.errors import UnsupportedError
from ms_tune.estimate.megatron import megatron_stage
from ms_tune.estimate.stage import Estimate
from ms_tune.layers.result import Effect, Kind
from ms_tune.layers.stage import StageLayer, stage_of
from ms_tune.normalize.megatron import ArgumentReader
from ms_tune.texts import msg

if TYPE_CHECKING:
    from ms_tune.dryrun.request import Split
    from ms_tune.launch.options import Command
    from ms_tune.layers.plans import NormalizedPlan
    from ms_tune.layers.result import LayerPlan
    from ms_tune.verdict.limit import Limit

# What holds other things than theory and these closed forms know.
_OTHERWISE = (
    *("reuse_fp32_param", "swap_attention", "swap_optimizer", "moe_zero_memory", "tp_2d", "lora_target_modules"),
    *("use_torch_fsdp2", "use_custom_fsdp", "moe_tp_extend_ep", "schedules_method"),
)
_TUNED = ("sft",)  # stages of posttrain_gpt.py that hold one model
_GATED_FEED_FORWARD = 64  # Megatron rounds the default width of a gated feed-forward block down to a multiple of this
_MOST_EXPERTS = 1 << 16
_MOST = 1 << 32  # of a size: no model is near it


def estimate_of_script(command: Command, plan: NormalizedPlan, split: Split, limit: tuple[Limit, int]) -> Estimate:
    """What every stage holds.

    Args:
        command: The program's arguments.
        plan: What its layers do.
        split: How its devices share the work.
        limit: What a stage may take, and what is set aside of it.

    Raises:
        UnsupportedError: Something that decides is not known, or holds what no closed form tells.
        NotEvaluableError: A value is not known without running the script.
        ConfigError: A value is of no served form.
    """
    read = ArgumentReader(command)
    for dest in _OTHERWISE:
        if read.value(dest) not in (None, False, 0, [], "", "disable"):
            raise UnsupportedError(msg("check.script.otherwise", argument=read.written(dest)))
    if read.value("ai_framework") != "mindspore":
        raise UnsupportedError(msg("check.script.not-mindspore"))
    if read.value("stage") not in (None, *_TUNED):
        raise UnsupportedError(msg("check.script.otherwise", argument=read.written("stage")))
    config = _config(read, split, len(plan.layers))
    micro = _size(read, "micro_batch_size")
    pipeline = Pipeline.of_megatron(
        split.pipeline,
        len(plan.placement or ()) or 1,
        max(1, _size(read, "global_batch_size", micro * split.data) // (micro * split.data)),
    )
    layers = [(one.chunk, one.stage, _layer(one, plan)) for one in plan.layers if one.kind is not Kind.NOOP]
    fused = read.switch("use_fused_swiglu") or not config.shape.gated
    stages = []
    for number in range(split.pipeline):
        in_flight = pipeline.in_flight(number)
        if in_flight is None:
            raise UnsupportedError(msg("fitting.schedule"))
        stage = stage_of(layers, number, pipeline.stages, pipeline.chunks)
        stages.append(megatron_stage(config, stage, in_flight, fused=fused))
    return Estimate(tuple(stages), *limit, experts=config.shape.experts is not None)


def _layer(one: LayerPlan, plan: NormalizedPlan) -> StageLayer:
    predicts = one.kind is Kind.PREDICTION
    ordinary = [other.kind for other in plan.layers if other.kind in (Kind.DENSE, Kind.EXPERTS)]
    experts = (ordinary[-1:] == [Kind.EXPERTS]) if predicts else one.kind is Kind.EXPERTS
    return StageLayer(one.layer, experts=experts, mtp=predicts, full=one.recompute is Effect.FULL)


def _config(read: ArgumentReader, split: Split, layers: int) -> TrainingConfig:
    half = read.switch("bf16") or read.switch("fp16")
    # validate_args of Megatron-LM core_v0.12.1 sets it for bfloat16.
    wide = read.switch("bf16") or read.switch("accumulate_allreduce_grads_in_fp32") or not half
    sharding = Sharding.OPTIMIZER if read.switch("use_distributed_optimizer") else Sharding.NONE
    return TrainingConfig(
        _shape(read, split, layers),
        Parallelism(
            split.tensor,
            split.pipeline,
            split.context,
            split.expert,
            None,
            read.switch("sequence_parallel") and split.tensor > 1,
        ),
        Batch(_size(read, "micro_batch_size"), 1),
        Precision(
            DType.BFLOAT16 if half else DType.FLOAT32,
            mixed=half,
            gradients=DType.FLOAT32 if wide else DType.FLOAT16,
            compute=None,
        ),
        Optimizer(
            read.text("optimizer") or "adam",
            gradient_buffers=True,
            sharding=sharding,
            shards=split.data * split.context,
        ),
    )


def _shape(read: ArgumentReader, split: Split, layers: int) -> ModelShape:
    hidden, heads = _size(read, "hidden_size"), _size(read, "num_attention_heads")
    gated = read.switch("swiglu") or read.switch("geglu")
    wide = hidden * 8 // 3 // _GATED_FEED_FORWARD * _GATED_FEED_FORWARD if gated else 4 * hidden
    bias = read.switch("add_bias_linear")
    return ModelShape(
        vocab_size=_size(read, "padded_vocab_size"),
        hidden_size=hidden,
        ffn_hidden_size=_size(read, "ffn_hidden_size", wide),
        num_layers=layers,
        num_attention_heads=heads,
        num_query_groups=_size(read, "num_query_groups") if read.switch("group_query_attention") else heads,
        head_size=_size(read, "kv_channels", hidden // heads),
        seq_length=_size(read, "seq_length"),
        activation="swiglu" if gated else "gelu",
        normalization=read.text("normalization") or "LayerNorm",
        rotary=read.text("position_embedding_type") != "learned_absolute",
        tied_embeddings=not read.switch("untie_embeddings_and_output_weights"),
        qkv_bias=bias or read.switch("add_qkv_bias"),
        output_bias=bias or read.switch("add_dense_bias"),
        mlp_bias=bias,
        flash_attention=read.switch("use_flash_attn"),
        qk_norm=read.switch("qk_layernorm"),
        sandwich_norm=read.switch("post_norm"),
        latent=_latent(read) if read.switch("multi_latent_attention") else None,
        experts=_experts(read, split) if (read.integer("num_experts") or 0) > 1 else None,
        legacy=True,
    )


def _latent(read: ArgumentReader) -> LatentAttention:
    return LatentAttention(
        query_rank=read.integer("q_lora_rank"),
        key_value_rank=_size(read, "kv_lora_rank"),
        plain_size=_size(read, "qk_head_dim"),
        rotary_size=_size(read, "qk_pos_emb_head_dim"),
        value_size=_size(read, "v_head_dim"),
    )


def _experts(read: ArgumentReader, split: Split) -> Experts:
    wide = _size(read, "moe_ffn_hidden_size", read.integer("ffn_hidden_size"))
    shared = (read.integer("n_shared_experts") or 0) * wide
    count = _size(read, "num_experts")
    if count % split.expert or count > _MOST_EXPERTS:
        raise UnsupportedError(msg("check.script.otherwise", argument=read.written("num_experts")))
    return Experts(
        count=count,
        per_token=_size(read, "moe_router_topk"),
        ffn_hidden_size=wide,
        shared_ffn_hidden_size=read.integer("moe_shared_expert_intermediate_size") or shared,
        shared_gate=read.switch("shared_expert_gate"),
        grouped=read.switch("moe_grouped_gemm"),
        router=DType.BFLOAT16,
        tensor_parallel=read.integer("expert_tensor_parallel_size") != 1,
    )


def _size(read: ArgumentReader, dest: str, default: int | None = None) -> int:
    """A whole number above zero.

    Raises:
        UnsupportedError: It is not written, and has no default.
    """
    found = read.integer(dest)
    found = default if found is None else found
    if found is None or not 0 < found < _MOST:
        raise UnsupportedError(msg("check.script.no-size", argument=read.written(dest)))
    return found
