"""Compute the memory that a MindFormers static-graph job must use by theory, if its config determines it exactly.

MindFormers reads a model's sizes from the config and, if they are missing, from the class of the model
(``mindformers/models/*/configuration_*.py``, 1.9); one key of ``model_config`` sets one setting (``config_converter_*.py``).
Settings that are not listed here change no weight, or are rejected: then the result is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ms_tune.dialects.job_parts import DType, Experts, LatentAttention, ModelShape, TrainingConfig
from ms_tune.dialects.stage import Stage, with_prediction
from ms_tune.dryrun.shrink.config_copy import ConfigCopy
from ms_tune.dryrun.shrink.mindformers_data import MODEL, splits_operators
from ms_tune.estimate.persistent import StaticSharing, static_bytes, weights_config
from ms_tune.facts.keys import mindspore_values
from ms_tune.facts.models import ModelFacts, facts_of, is_legacy, names_of
from ms_tune.facts.query import load
from ms_tune.records import Record

_KIB = 1024
_RELEASE = "1.9"  # the release that the theory applies to
_THRESHOLD = 64  # KiB; default of `parallel_optimizer_threshold` (MindSpore's `set_auto_parallel_context`)
_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")
_EXPERT_KEYS = ("num_experts", "n_routed_experts", "n_shared_experts", "moe_shared_expert_intermediate_size")
_LATENT_KEYS = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_WAYS = ("data_parallel", "context_parallel", "model_parallel", "expert_parallel")


class _UnknownError(Exception):
    """The config does not determine the weights exactly."""


def mindformers_theory(config: ConfigCopy, stage: Stage | None) -> dict[str, int]:
    """Return one rank's bytes by category (the names of :class:`ms_tune.enums.MemoryCategory`); empty if unknown.

    Gradients are excluded: those accumulated over micro-batches live for the whole run, but a trace also counts others that are
    alive at the peak. The stage is without the layer of multi-token prediction; None if it is unknown.
    """
    facts = facts_of(_RELEASE, kind=str(config.get(f"{MODEL}.model_type")))
    if stage is None or is_legacy(config.data) or "static" not in facts.modes:
        return {}
    try:
        _check_settings(config)
        settings = _Settings(config.get(MODEL), facts)
        trained, sharing = _static_training(config, settings)
        _check_sizes(trained, sharing, stage)
        return static_bytes(trained, sharing, with_prediction(stage, _count_predicted(settings)))
    except _UnknownError:
        return {}


def _check_settings(config: ConfigCopy) -> None:
    # Raise :class:`_UnknownError` if a setting has a value for which the theory does not apply.
    known = load("weights")
    for path, values in (
        {f"{MODEL}.{key}": values for key, values in known["model"].items()} | known["elsewhere"]
    ).items():
        value = config.get(path)
        if value is not None and not any(value == each and type(value) is type(each) for each in values):
            raise _UnknownError
    if config.get("optimizer.type") is None:
        raise _UnknownError


def _check_sizes(config: TrainingConfig, sharing: StaticSharing, stage: Stage) -> None:
    shape, experts, split = config.shape, config.shape.experts, config.parallelism
    heads = (shape.num_attention_heads,) if shape.latent else (shape.num_attention_heads, shape.num_query_groups)
    sizes = (shape.vocab_size, shape.ffn_hidden_size, *heads)
    uneven = any(size % split.tensor for size in sizes) or (experts and experts.routed % split.expert)
    same = [sharing.ranks // ways for ways in (1, split.tensor, split.expert)]
    ragged = sharing.most and any(ranks > sharing.most and ranks % sharing.most for ranks in same)
    if uneven or ragged or any(chunk.head and not chunk.layers for chunk in stage.chunks):
        raise _UnknownError


class _Settings(Record):
    """The model's settings, with the defaults of its class."""

    own: Mapping[str, object]
    facts: ModelFacts

    def get(self, key: str) -> object:
        """Return a value; None if it is missing or null."""
        if self.is_set(key):
            return self.own[key] if key in self.own else self.facts.defaults[key]
        return self.facts.fields.get(self.facts.field_names.get(key, key))

    def is_set(self, key: str) -> bool:
        """Return whether the config or the model's class sets a value, even null."""
        return key in self.own or key in self.facts.defaults

    def size(self, key: str) -> int:
        """Return a value that must be a number above zero."""
        value = self.get(key)
        if type(value) is not int or value < 1:
            raise _UnknownError
        return value

    def flag(self, key: str) -> bool:
        """Return a value that must be true or false; false if missing."""
        value = self.get(key) or False
        if type(value) is not bool:
            raise _UnknownError
        return value


def _foreign_keys(kind: str, *, latent: bool, experts: bool) -> Iterator[str]:
    if not latent:
        yield from (*_LATENT_KEYS, "num_nextn_predict_layers", "first_k_dense_replace")
        yield from _EXPERT_KEYS[1:3] if experts else _EXPERT_KEYS
    else:
        yield from ("attention_bias", "num_experts", "head_dim", "kv_channels")
    if not kind.startswith("qwen3"):
        yield "tie_word_embeddings"


def _count_predicted(settings: _Settings) -> int:
    predicted = settings.get("num_nextn_predict_layers") or 0
    if predicted not in (0, 1):
        raise _UnknownError
    return int(predicted)


def _model_shape(settings: _Settings, dtype: DType) -> ModelShape:
    # All models of ``parallel_core`` use RMSNorm, gated feed-forward blocks and rotary positions. No weight depends on the rest.
    kind, latent = str(settings.facts.kind), settings.flag("multi_latent_attention")
    experts = any(key in settings.facts.defaults for key in names_of("num_moe_experts"))
    foreign = _foreign_keys(kind, latent=latent, experts=experts)
    if latent is not settings.facts.latent or any(settings.get(key) for key in foreign):
        raise _UnknownError
    vocabulary, hidden, wide, heads = (settings.size(key) for key in _SIZES)
    return ModelShape(
        vocab_size=vocabulary,
        hidden_size=hidden,
        ffn_hidden_size=wide,
        layers=1,
        num_attention_heads=heads,
        num_query_groups=settings.size("num_key_value_heads") if settings.is_set("num_key_value_heads") else heads,
        head_size=settings.size("head_dim") if settings.is_set("head_dim") else hidden // heads,
        seq_length=1,
        activation="swiglu",
        normalization="RMSNorm",
        rotary=True,
        tied_embeddings=settings.flag("tie_word_embeddings"),
        qkv_bias=settings.flag("attention_bias"),
        output_bias=False,
        mlp_bias=False,
        flash_attention=True,
        qk_norm=kind.startswith("qwen3") or settings.flag("qk_layernorm"),
        latent=_latent_attention(settings) if latent else None,
        experts=_static_experts(settings, dtype) if experts else None,
    )


def _latent_attention(settings: _Settings) -> LatentAttention:
    queries = settings.size("q_lora_rank") if settings.get("q_lora_rank") is not None else None
    rank, plain, rotary, value = (settings.size(key) for key in _LATENT_KEYS[1:])
    return LatentAttention(queries, rank, plain, rotary, value, joined=settings.flag("mla_qkv_concat"))


def _static_experts(settings: _Settings, dtype: DType) -> Experts:
    # Return the experts; the shared ones count as one, as wide as all together or as configured, and whole on every rank.
    key = "num_experts" if settings.get("num_experts") is not None else "n_routed_experts"
    width, shared = settings.size("moe_intermediate_size"), "moe_shared_expert_intermediate_size"
    several = settings.size("n_shared_experts") if settings.get("n_shared_experts") else 0
    if not settings.flag("moe_grouped_gemm") or settings.get(shared) == 0:
        raise _UnknownError
    return Experts(
        routed=settings.size(key),
        per_token=1,
        ffn_hidden_size=width,
        shared_ffn_hidden_size=settings.size(shared) if settings.get(shared) is not None else several * width,
        router=dtype,
        tensor_parallel=False,
        flat=True,
        balanced=settings.flag("moe_router_enable_expert_bias"),
    )


def _static_training(config: ConfigCopy, settings: _Settings) -> tuple[TrainingConfig, StaticSharing]:
    # Return the training settings, and the sharding over the stage's ranks (MindSpore's ``set_auto_parallel_context``). Without
    # operator splitting MindFormers sets all sizes to 1.
    shares = bool(config.get("parallel.enable_parallel_optimizer", default=False))
    if splits_operators(config):
        if config.get("parallel.parallel_mode", 1) not in mindspore_values("semi_automatic"):
            raise _UnknownError
    elif config.get("use_parallel", default=False):
        raise _UnknownError  # in data parallelism optimizer state is sharded differently
    data, context, tensor, expert = (config.get(f"parallel_config.{name}", 1) for name in _WAYS)
    if not all(type(ways) is int and ways > 0 for ways in (data, context, tensor, expert)):
        raise _UnknownError
    ranks = data * context * tensor
    section = "parallel.parallel_optimizer_config"
    most = config.get(f"{section}.optimizer_weight_shard_size", -1)
    threshold = config.get(f"{section}.parallel_optimizer_threshold", _THRESHOLD)
    if type(most) is not int or type(threshold) is not int or threshold < 0 or ranks % expert:
        raise _UnknownError
    dtype = settings.get("params_dtype")
    if dtype not in tuple(DType):
        raise _UnknownError
    dtype = DType(str(dtype))
    trained = weights_config(_model_shape(settings, dtype), dtype, tensor, expert)
    return trained, StaticSharing(ranks, shares, most if most > 0 else None, threshold * _KIB)
