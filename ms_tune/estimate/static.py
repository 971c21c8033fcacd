"""Estimate the persistent memory of MindFormers static graphs that :mod:`ms_tune.dryrun.theory_mindformers` does not cover exactly.

These are legacy networks, unusual settings, and fine-tuning with LoRA. Sources, MindFormers 1.9:
``models/llama/llama_transformer.py`` and ``llama_layer.py``, ``models/glm2/glm2_transformer.py``, ``modules/transformer/moe.py``,
``pet/tuners/lora_adapter.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ms_tune.dialects.job_parts import (
    DType,
    Experts,
    LatentAttention,
    MicroBatches,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    Sharding,
    TrainingConfig,
)
from ms_tune.dialects.mindformers.read import Adapter, read_adapter
from ms_tune.dialects.stage import Stage, StageLayer
from ms_tune.estimate.flops import Widths
from ms_tune.estimate.persistent import (
    StaticSharing,
    WeightBytes,
    gathered_bytes,
    layer_weights,
    shard_weights,
    stage_weights,
)
from ms_tune.facts.models import ModelConfig, names_of
from ms_tune.records import Record


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
        dtype = parameter_dtype(self.model)
        return TrainingConfig(
            _shape_of(self.model, self.widths),
            Parallelism(self.tensor, 1, 1, self.expert, None, sequence=False),
            MicroBatches(1, 1),
            Precision(dtype, mixed=False, gradients=dtype, norm=DType.FLOAT32),
            Optimizer("AdamW", gradient_buffers=False, sharding=Sharding.NONE),
        )


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
            layers=tuple(filter(_is_recomputed, chunk.layers)),
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


def _is_recomputed(layer: StageLayer) -> bool:
    return layer.full


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
