"""Checks of what the legacy Llama network refuses while it is built (MindFormers 1.6 to 2.1).

``LlamaModel`` in ``mindformers/models/llama/llama.py``, ``LLamaAttention`` and ``LLamaDecodeLayer`` in
``llama_transformer.py`` and ``LlamaFeedForward`` in ``llama_layer.py`` beside it; ``LowerTriangularMaskWithDynamic`` and
``MoEV2`` in ``mindformers/modules/transformer``; ``FreqsMgr`` in ``mindformers/modules/layers.py``. The releases differ in
none of the rules. Other legacy networks have rules of their own, and are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.config.source import MISSING
from ms_tune.lint.checks import startup
from ms_tune.lint.context import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ms_tune.config.source import KeyPath
    from ms_tune.lint.context import Context

_MODEL = ("model", "model_config")
_PARALLEL = "parallel_config"
_NETWORKS = (None, "LlamaForCausalLM", "LlamaModel")
# What `LlamaConfig` has where the config says nothing.
_DEFAULTS = {"hidden_size": 4096, "num_heads": 32, "seq_length": 2048, "multiple_of": 256, "num_layers": 32}
_MASK = 2048  # tokens: the size of the compressed mask
_TYPES = ("float16", "float32", "bfloat16", "int8")  # `convert_mstype` in mindformers/models/utils.py
_TYPED = (
    *("compute_dtype", "layernorm_compute_type", "softmax_compute_type", "rotary_dtype", "param_init_type"),
    *("embedding_init_type", "residual_dtype"),
)
_UNSET = ("embedding_init_type", "residual_dtype")  # where a null stands for another setting's type


@dataclass(frozen=True, slots=True)
class _Network:
    """What the config says about the network; a number is None where it is not known."""

    context: Context

    def size(self, name: str) -> int | None:
        """A number of the model."""
        return self.context.integer(".".join((*_MODEL, name)), _DEFAULTS.get(name))

    def on(self, name: str) -> bool:
        """Whether a switch of the model is on."""
        return bool(self.context.get(".".join((*_MODEL, name))))

    def ways(self, name: str) -> int:
        """A number of ``parallel_config``: 1 unless the network is split."""
        return (self.context.integer(f"{_PARALLEL}.{name}", 1) or 1) if startup.splits(self.context) else 1

    @property
    def splits_sequence(self) -> bool:
        """Whether the sequence goes through the pipeline in parts; this setting holds even if nothing else is split."""
        return (self.context.integer(f"{_PARALLEL}.seq_split_num", 1) or 1) > 1

    @property
    def head_ways(self) -> int:
        """In how many ways heads are split: ``model_parallel``, times the ranks of Ulysses context parallelism."""
        context = self.ways("context_parallel")
        algorithm = self.context.get(f"{_PARALLEL}.context_parallel_algo", "colossalai_cp")
        degree = self.context.integer(f"{_PARALLEL}.ulysses_degree_in_cp", 1) or 1
        ulysses = {"ulysses_cp": context, "hybrid_cp": degree}.get(str(algorithm), 1) if context > 1 else 1
        return self.ways("model_parallel") * ulysses

    @property
    def key_heads(self) -> int | None:
        """Heads of keys and values."""
        return self.size("n_kv_heads") or self.size("num_heads")

    @property
    def inner(self) -> int | None:
        """The width of the feed-forward block, which follows from others if it is not said."""
        given = self.context.get(".".join((*_MODEL, "intermediate_size")))
        hidden, multiple = self.size("hidden_size"), self.size("multiple_of")
        factor = self.context.get(".".join((*_MODEL, "ffn_dim_multiplier")))
        if given is not None or hidden is None or not multiple:
            return given if isinstance(given, int) and not isinstance(given, bool) else None
        width = 4 * hidden
        if factor is not None:
            if not isinstance(factor, (int, float)):
                return None
            width = int((factor + 0.01) * width)
        return -(-int(2 * width / 3) // multiple) * multiple

    @property
    def experts(self) -> int:
        """Experts of a layer; 1 for a plain feed-forward block."""
        return self.context.integer("moe_config.expert_num", 1) or 1

    @property
    def fuses_experts(self) -> bool:
        """Whether experts are multiplied in groups, by a cell (``MoEV3``) that has none of these rules."""
        return self.experts > 1 and bool(self.context.get("moe_config.use_gmm"))


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule: what it says, where to point, and what the network has if it is broken; None if it is not."""

    message: str
    at: KeyPath
    broken: Callable[[_Network], dict[str, object] | None]


def refused(context: Context) -> Iterator[Violation]:
    """Settings that the network refuses, several of them together mostly."""
    if not is_llama(context):
        return
    network = _Network(context)
    layers = network.size("num_layers") or 0
    # Of layers that compute and communicate in turn only the model itself is looked at: they have rules of their own.
    interleaved = (network.size("fine_grain_interleave") or 1) > 1 and network.ways("model_parallel") > 1
    for rule in _RULES_OF_MODEL if interleaved or not layers else (*_RULES_OF_MODEL, *_RULES_OF_LAYERS):
        found = rule.broken(network)
        if found is not None:
            yield Violation(_written(context, rule.at), rule.message, found)


def data_types(context: Context) -> Iterator[Violation]:
    """A data type that ``convert_mstype`` does not know; capitals make no difference."""
    if not is_llama(context):
        return
    for name in _TYPED:
        value = context.source.get((*_MODEL, name), MISSING)
        if value is MISSING or (value is None and name in _UNSET):
            continue
        if str(value).lower() not in _TYPES:
            yield Violation((*_MODEL, name), params={"choices": ", ".join(_TYPES)})


def is_llama(context: Context) -> bool:
    """Whether the config is one of the legacy Llama network, and says all about it."""
    named = context.get("model.arch.type") in _NETWORKS and context.get("model.model_config.type") == "LlamaConfig"
    return startup.is_legacy(context) and named and not context.get("pretrained_model_dir")


def _rest(one: int | None, other: int | None, ways: int | None = None) -> dict[str, object] | None:
    """The two numbers, if the second does not divide the first."""
    if one is None or not other or one % other == 0:
        return None
    return {"number": one, "divisor": other, "ways": ways or other}


def _broken(condition: object, **params: object) -> dict[str, object] | None:
    return params if condition else None


def _ranks_of_experts(network: _Network) -> dict[str, object] | None:
    """Each group of expert-parallel ranks takes its ranks out of the data- and context-parallel ones."""
    if network.experts == 1 or network.fuses_experts:
        return None
    ranks, groups = network.ways("data_parallel") * network.ways("context_parallel"), network.ways("expert_parallel")
    within = network.context.integer("moe_config.expert_model_parallel")
    if within is not None:
        ranks, groups = ranks * network.ways("model_parallel"), groups * within
    return _broken(groups > ranks, ranks=ranks, groups=groups)


def _of_routing(network: _Network) -> dict[str, object] | None:
    policy = network.context.get("moe_config.routing_policy", "TopkRouterV1")
    plain = network.experts > 1 and not network.fuses_experts
    return _broken(plain and policy != "TopkRouterV2", policy=policy)


def _of_expert_ways(network: _Network) -> dict[str, object] | None:
    within, ways = network.context.integer("moe_config.expert_model_parallel"), network.ways("model_parallel")
    return _broken(within is not None and within not in (1, ways), within=within, ways=ways)


def _switch(name: str, *, needs: Callable[[_Network], bool]) -> Callable[[_Network], dict[str, object] | None]:
    return lambda network: _broken(network.on(name) and not needs(network), name=name)


def _flash(network: _Network) -> bool:
    return network.on("use_flash_attention")


def _whole(network: _Network) -> bool:
    return not network.splits_sequence


def _long(network: _Network) -> bool:
    return (network.size("seq_length") or _MASK) >= _MASK


_MASKS = ("use_attn_mask_compression", "use_eod_attn_mask_compression")
_RULES_OF_MODEL = (
    *(
        _Rule("flash", (*_MODEL, name), _switch(name, needs=_flash))
        for name in ("use_ring_attention", "use_eod_attn_mask_compression")
    ),
    *(
        _Rule("parts", (*_MODEL, name), _switch(name, needs=_whole))
        for name in ("use_ring_attention", "use_eod_attn_mask_compression")
    ),
    *(_Rule("short", (*_MODEL, name), _switch(name, needs=_long)) for name in _MASKS),
)
_RULES_OF_LAYERS = (
    _Rule(
        "parts-flash",
        (_PARALLEL, "seq_split_num"),
        lambda network: _broken(network.splits_sequence and not _flash(network)),
    ),
    _Rule(
        "width", (*_MODEL, "hidden_size"), lambda network: _rest(network.size("hidden_size"), network.size("num_heads"))
    ),
    _Rule("heads", (*_MODEL, "num_heads"), lambda network: _rest(network.size("num_heads"), network.head_ways)),
    _Rule("key-heads", (*_MODEL, "n_kv_heads"), lambda network: _rest(network.size("n_kv_heads"), network.head_ways)),
    _Rule(
        "inner",
        (*_MODEL, "intermediate_size"),
        lambda network: None if network.fuses_experts else _rest(network.inner, network.ways("model_parallel")),
    ),
    _Rule("routing", ("moe_config", "routing_policy"), _of_routing),
    _Rule("expert-ways", ("moe_config", "expert_model_parallel"), _of_expert_ways),
    _Rule("expert-ranks", (_PARALLEL, "expert_parallel"), _ranks_of_experts),
)


def _written(context: Context, path: KeyPath) -> KeyPath:
    """The key path if it is written, or else its section."""
    section = context.source.get(path[:-1])
    return path if isinstance(section, dict) and path[-1] in section else path[:-1]
