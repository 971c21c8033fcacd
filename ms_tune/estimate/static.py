"""Count the parameters of a model, and estimate the persistent memory of static graphs that theory does not cover exactly.

The latter (:mod:`ms_tune.dryrun.theory_mindformers` has the others) are legacy networks, unusual settings, and fine-tuning with
LoRA. Sources, MindFormers 1.9: ``models/llama/llama_transformer.py`` and ``llama_layer.py``, ``models/glm2/glm2_transformer.py``, ``modules/transformer/moe.py``,
``pet/tuners/lora_adapter.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ms_tune.dialects.job_parts import DType, Experts, LatentAttention, ModelShape, TrainingConfig
from ms_tune.dialects.mindformers.read import Adapter, read_adapter
from ms_tune.dialects.stage import Chunk, Stage, StageLayer
from ms_tune.estimate.flops import Widths, widths_of
from ms_tune.estimate.persistent import (
    StaticSharing,
    WeightBytes,
    gathered_bytes,
    layer_weights,
    shard_weights,
    stage_weights,
    weights_config,
)
from ms_tune.facts.models import LAYERS, ModelConfig, names_of
from ms_tune.facts.sizes import parts_of
from ms_tune.records import Any, Record


class StaticModel(Record):
    """A model and how it is split."""

    model: ModelConfig
    widths: Widths
    tensor: int
    expert: int
    whole_vocabulary: bool  # each TP rank has the whole embedding and head (``vocab_emb_dp`` of legacy networks)

    def model_weights(self, stage: Stage) -> Iterator[WeightBytes]:
        """Yield the model's own weights on one rank of a stage."""
        config = self._training()
        vocabulary, shape = config.shape.vocab_size // self.tensor, config.shape
        # The embedding comes first; Llama's is sharded only with this key (``LlamaEmbedding``).
        whole = (
            stage.chunks[0].embedding and self.model.facts.legacy and self.model.value("parallel_optimizer") is False
        )
        for number, weight in enumerate(stage_weights(config, stage)):
            if self.whole_vocabulary and weight.rows == vocabulary and weight.columns == shape.hidden_size:
                weight = weight._replace(rows=shape.vocab_size, ways=1)  # noqa: PLW2901 - the same weight, whole
            yield weight._replace(whole=True) if whole and number == 0 else weight

    def weights(self, stage: Stage) -> Iterator[WeightBytes]:
        """Yield the weights of one rank of a stage; with LoRA, the model's own are frozen and those of the adapter follow."""
        adapter, config = read_adapter(self.model), self._training()
        if adapter is None:
            yield from self.model_weights(stage)
            return
        yield from (weight._replace(trained=False) for weight in self.model_weights(stage))
        layers = [layer for chunk in stage.chunks for layer in chunk.layers]
        for weight in (weight for layer in layers for weight in layer_weights(config, layer)):
            if weight.columns > 1 and not weight.experts:
                yield from _adapter_weights(weight, config.shape, adapter)

    def _training(self) -> TrainingConfig:
        shape, dtype = _shape_of(self.model, self.widths), parameter_dtype(self.model)
        return weights_config(shape, dtype, self.tensor, self.expert, norm=DType.FLOAT32)


class StaticMemory(Record):
    """A rank's memory for weights in a static graph, in bytes."""

    weights: int
    optimizer: int  # Adam's state
    gradients: int  # of trained weights, as sharded as they are
    step: int  # copies of gradients, and of the largest weight, during the optimizer's step
    accumulated: int  # gradients summed over micro-batches; 0 without pipeline stages
    gathered: int  # whole weights of recomputed layers, gathered from the ranks that shard them


def estimate_static_memory(
    job: StaticModel, sharing: StaticSharing, stage: Stage, *, shards_sums: bool
) -> StaticMemory:
    """Estimate the memory of one rank of a stage for its weights; ``shards_sums``: accumulated gradients are sharded, too.

    Only pipeline stages accumulate gradients in MindFormers' static graph.
    """
    weights = list(job.weights(stage))
    trained = [one for one in weights if one.trained]
    gradients = shard_weights(trained, sharing)["weights"]
    accumulated = 0
    if stage.stages > 1:
        accumulated = gradients if shards_sums else sum(one.size * one.dtype.bytes for one in trained)
    whole = shard_weights(weights, sharing)
    # Forward passes of later micro-batches need the embedding again.
    chunks = tuple(
        chunk._replace(
            layers=tuple(layer for layer in chunk.layers if layer.full),
            embedding=chunk.embedding and stage.stages > 1,
            head=False,
        )
        for chunk in stage.chunks
    )
    again = job.weights(stage._replace(chunks=chunks))
    if not job.model.facts.legacy:  # cast before they are gathered
        again = (one._replace(dtype=DType.BFLOAT16) if one.columns > 1 else one for one in again)
    gathered = gathered_bytes(again, sharing)
    return StaticMemory(
        whole["weights"], whole["optimizer_state"], gradients, _step_bytes(job, trained, sharing), accumulated, gathered
    )


def _step_bytes(job: StaticModel, trained: Sequence[WeightBytes], sharing: StaticSharing) -> int:
    # Clipping copies all gradients, in float32; the last weight's update adds three more of its size. Legacy networks fuse
    # these operators, and copy in the format of the weights: a reduction over several ranks copies the gradients, and only
    # an update of bfloat16 weights adds to them.
    counts = Counter(trained)  # a model has few different weights
    sizes = {one: shard_weights([one._replace(dtype=DType.FLOAT32)], sharing)["weights"] for one in counts}
    update = 3 * max(sizes.values(), default=0)
    if not job.model.facts.legacy:
        return 2 * sum(size * counts[one] for one, size in sizes.items()) + update
    copies = (2 if sharing.ranks > 1 else 1) * shard_weights(trained, sharing)["weights"]
    return copies + (0 if parameter_dtype(job.model) is DType.FLOAT32 else update)


def parameter_dtype(model: ModelConfig) -> DType:
    """Return the number format of a model's parameters, under any of its names; float32 by default."""
    written = map(model.value, names_of("params_dtype"))
    return next((DType(one) for one in written if one in tuple(DType)), DType.FLOAT32)


def has_query_norm(model: ModelConfig) -> bool:
    """Return whether a model normalises queries and keys."""
    return any(model.value(name) is True for name in names_of("qk_layernorm"))


def _shape_of(model: ModelConfig, widths: Widths) -> ModelShape:
    def is_on(*names: str) -> bool:
        return any(model.value(name) is True for name in names)

    attention, biases = widths.attention, is_on("add_bias_linear")
    latent = None
    if attention.key_rank:
        plain = attention.head - attention.rotary
        latent = LatentAttention(
            attention.query_rank or None, attention.key_rank, plain, attention.rotary, attention.value
        )
    experts = None
    if widths.experts:
        experts = Experts(widths.experts, widths.chosen, widths.expert, widths.shared, tensor_parallel=False, flat=True)
    return ModelShape(
        vocab_size=widths.vocabulary,
        hidden_size=widths.hidden,
        ffn_hidden_size=widths.feed_forward,
        layers=1,
        num_attention_heads=attention.heads,
        num_query_groups=attention.groups,
        head_size=attention.head,
        seq_length=widths.tokens,
        activation="swiglu" if widths.gated else "gelu",
        normalization="RMSNorm" if widths.gated and model.value("rmsnorm") is not False else "LayerNorm",
        rotary=widths.gated,
        tied_embeddings=is_on("tie_word_embeddings"),
        qkv_bias=biases or is_on("qkv_has_bias", "add_qkv_bias", "attention_bias", "has_bias"),
        output_bias=biases or is_on("attn_proj_has_bias", "has_bias"),
        mlp_bias=biases,
        flash_attention=True,
        qk_norm=has_query_norm(model),
        sandwich_norm=is_on("post_self_attn_layernorm") and is_on("post_mlp_layernorm"),
        latent=latent,
        experts=experts,
    )


def _adapter_weights(weight: WeightBytes, shape: ModelShape, adapter: Adapter) -> Iterator[WeightBytes]:
    # Yield the two matrices that LoRA adds to a projection.
    wide, outputs = shape.ffn_hidden_size, weight.rows * weight.ways
    if adapter.feed_forward if wide in (weight.columns, outputs, outputs // 2) else adapter.attention:
        yield WeightBytes(adapter.rank, weight.columns, DType.FLOAT32)
        yield WeightBytes(weight.rows, adapter.rank, DType.FLOAT32, ways=weight.ways)


_MOST_LAYERS = 10_000  # no model has so many; an untrusted config may claim any number
_EXPERTS = ("num_moe_experts", "num_local_experts")
_LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def count_parameters(model: ModelConfig) -> int | None:
    """Return the parameters of a model of any public family; None if one of its sizes is unknown.

    Layers for multi-token prediction do not count, as in the published figures (DeepSeek-V3: 671 billion), nor do biases that only
    balance experts. The settings have the names of a ``config.json`` of Hugging Face, or other names of MindFormers' fields.
    """
    if model.facts.legacy:
        return _count_legacy_parameters(model)
    shape = public_shape_of(model)
    if shape is None:
        return None
    layers = tuple(StageLayer(number, experts=has) for number, has in enumerate(list_expert_layers(model, shape)))
    stage = Stage(0, 1, (Chunk(layers, embedding=True, head=True),))
    biases = shape.layers * shape.hidden_size if parts_of(model.kind or "").get("down_bias") else 0
    weights = stage_weights(weights_config(shape, DType.BFLOAT16), stage)
    return sum(weight.size for weight in weights if weight.trained) + biases


def _count_legacy_parameters(model: ModelConfig) -> int | None:
    # Return those of a network of MindFormers' legacy classes, without an adapter's.
    widths, layers = widths_of(model), model.number(LAYERS) or 0
    if widths is None or not 0 < layers <= _MOST_LAYERS:
        return None
    kinds = tuple(StageLayer(number, experts=widths.experts > 0) for number in range(layers))
    stage = Stage(0, 1, (Chunk(kinds, embedding=True, head=True),))
    whole = StaticModel(model, widths, 1, 1, whole_vocabulary=False)
    return sum(weight.size for weight in whole.model_weights(stage))


def public_shape_of(model: ModelConfig) -> ModelShape | None:
    """Return the sizes of a model of any public family; None if one of them is unknown."""
    names = ("vocab_size", "hidden_size", "intermediate_size", LAYERS, "num_attention_heads")
    words, hidden, inner, layers, heads = map(model.number, names)
    if not (words and hidden and inner and layers and heads) or layers > _MOST_LAYERS:
        return None
    parts = parts_of(model.kind or "")
    latent = _latent_of(model) if parts.get("latent") or model.facts.latent else None
    return ModelShape(
        vocab_size=words,
        hidden_size=hidden,
        ffn_hidden_size=inner,
        layers=layers,
        num_attention_heads=heads,
        num_query_groups=model.number("num_key_value_heads") or heads,
        head_size=model.number("head_dim") or hidden // heads,
        seq_length=1,
        activation="swiglu",
        normalization="RMSNorm",
        rotary=True,
        tied_embeddings=model.value("tie_word_embeddings") is True,
        qkv_bias=_has(model, parts, "qkv_bias") or model.value("attention_bias") is True,
        output_bias=_has(model, parts, "output_bias"),
        mlp_bias=False,
        flash_attention=True,
        qk_norm=latent is not None or _has(model, parts, "qk_norm"),
        sandwich_norm=_has(model, parts, "sandwich_norm"),
        latent=latent,
        experts=_experts_of(model, inner, parts),
    )


def _has(model: ModelConfig, parts: Mapping[str, Any], name: str) -> bool:
    rule = parts.get(name, False)
    return model.value(rule) is True if isinstance(rule, str) else bool(rule)


def _latent_of(model: ModelConfig) -> LatentAttention | None:
    rank, plain, rotary, value = map(model.number, _LATENT)
    if not (rank and plain and rotary and value):
        return None
    return LatentAttention(model.number("q_lora_rank") or None, rank, plain, rotary, value, joined=False)


def list_expert_layers(model: ModelConfig, shape: ModelShape) -> list[bool]:
    """Return which layers of a public model have experts (``transformers``, ``modeling_deepseek_v3.py``).

    ``decoder_sparse_step`` and ``mlp_only_layers`` are not read: no public model in the tables of sizes
    sets them to anything but the default.
    """
    first = model.number("first_k_dense_replace") or 0
    return [shape.experts is not None and number >= first for number in range(shape.layers)]


def _experts_of(model: ModelConfig, inner: int, parts: Mapping[str, Any]) -> Experts | None:
    routed = next((count for count in map(model.number, _EXPERTS) if count), None)
    if routed is None or routed == 1:
        return None
    width = model.number("moe_intermediate_size") or inner
    shared = model.number("shared_expert_intermediate_size") or model.number("moe_shared_expert_intermediate_size")
    return Experts(
        routed,
        model.number("num_experts_per_tok") or 0,
        width,
        shared or (model.number("n_shared_experts") or 0) * width,
        shared_gate=_has(model, parts, "shared_gate"),
    )
