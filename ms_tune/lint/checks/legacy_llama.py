"""Checks of what the legacy Llama network refuses while it is built (MindFormers 1.6 to 2.1).

``LlamaModel`` in ``mindformers/models/llama/llama.py``, ``LLamaAttention`` and ``LLamaDecodeLayer`` in
``llama_transformer.py``, ``LlamaFeedForward`` in ``llama_layer.py`` and ``LLamaDecodeLayerInterleave`` in
``llama_interleave.py`` beside it; ``LowerTriangularMaskWithDynamic``, ``MoEV2`` and ``MoEV3`` in
``mindformers/modules/transformer``; ``FreqsMgr`` in ``mindformers/modules/layers.py``. The releases differ in none of the
rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindformers import startup
from ms_tune.lint.checks.legacy_network import EXPERTS, MODEL, PARALLEL, Network, NetworkRule, broken_rule, if_, rest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ms_tune.dialects.check_context import CheckContext

_NETWORKS = (None, "LlamaForCausalLM", "LlamaModel")
_MASK = 2048  # tokens: the size of the compressed mask
_MASKS = ("use_attn_mask_compression", "use_eod_attn_mask_compression")


def refused(context: CheckContext) -> Iterator[Violation]:
    """What the network refuses, settings that do not go together mostly, by the rule that is asked for."""
    if not is_llama(context):
        return
    network = network_of(context)
    rules = list(_RULES_OF_MODEL)
    if network.size("num_layers") or 0:
        rules += _RULES_OF_LAYERS
        rules += _RULES_OF_INTERLEAVED if network.is_interleaved else _RULES_OF_PLAIN
    yield from broken_rule(network, rules)


def uneven_key_heads(context: CheckContext) -> Iterator[Violation]:
    """Heads of keys and values that the attention heads cannot share evenly.

    The network is built; ``FlashAttentionScore`` and the plain product of matrices refuse the shapes when it is compiled.
    """
    network = network_of(context)
    heads, key_heads = network.size("num_heads"), network.size("n_kv_heads")
    if is_llama(context) and heads and key_heads and key_heads > 0 and heads % key_heads:
        yield Violation((*MODEL, "n_kv_heads"), params={"heads": heads, "key_heads": key_heads})


def dropped_experts(context: CheckContext) -> Iterator[Violation]:
    """Experts beside ``fine_grain_interleave``: such layers have a plain feed-forward block and are not told of experts."""
    network = network_of(context)
    if is_llama(context) and network.is_interleaved and network.experts > 1:
        related = (((*MODEL, "fine_grain_interleave"), "interleave"),)
        yield Violation((EXPERTS, "expert_num"), params={"experts": network.experts}, related=related)


def ignored_interleave(context: CheckContext) -> Iterator[Violation]:
    """``fine_grain_interleave`` without tensor parallelism, which has nothing to communicate (``check_fine_grain_interleave_valid``)."""
    network = network_of(context)
    wanted = (network.size("fine_grain_interleave") or 1) > 1
    if is_llama(context) and wanted and not network.is_interleaved:
        yield Violation((*MODEL, "fine_grain_interleave"))


def is_llama(context: CheckContext) -> bool:
    """Whether the config is one of the legacy Llama network, and says all about it."""
    named = context.get("model.arch.type") in _NETWORKS and context.get("model.model_config.type") == "LlamaConfig"
    return startup.is_legacy(context) and named and not context.get("pretrained_model_dir")


def network_of(context: CheckContext) -> Network:
    """The network of the config."""
    return Network(context)


def inner(network: Network) -> int | None:
    """The width of the feed-forward block, which follows from others if it is not said."""
    given = network.get("intermediate_size")
    hidden, multiple = network.size("hidden_size"), network.size("multiple_of")
    factor = network.get("ffn_dim_multiplier")
    if given is not None or hidden is None or not multiple:
        return given if isinstance(given, int) and not isinstance(given, bool) else None
    width = 4 * hidden
    if factor is not None:
        if not isinstance(factor, (int, float)):
            return None
        width = int((factor + 0.01) * width)
    return -(-int(2 * width / 3) // multiple) * multiple


def fuses_experts(network: Network) -> bool:
    """Whether experts are multiplied in groups, by a cell (``MoEV3``) with rules of its own; also said for no experts."""
    return bool(network.of_experts("use_gmm"))


def shared_experts(network: Network) -> object:
    """Experts that every token goes through."""
    return network.of_experts("shared_expert_num") or 0


def _has_plain_block(network: Network) -> bool:
    """Whether ``LlamaFeedForward`` is what experts, or the lack of them, are made of."""
    return not fuses_experts(network) and (network.experts > 1 or not shared_experts(network))


def _ranks_of_experts(network: Network) -> dict[str, object] | None:
    """Each group of expert-parallel ranks takes its ranks out of the data- and context-parallel ones."""
    if network.experts == 1 or fuses_experts(network):
        return None
    ranks, groups = network.ways("data_parallel") * network.ways("context_parallel"), network.ways("expert_parallel")
    within = network.context.integer(f"{EXPERTS}.expert_model_parallel")
    if within is not None:
        ranks, groups = ranks * network.ways("model_parallel"), groups * within
    return if_(groups > ranks, ranks=ranks, groups=groups)


def _of_routing(network: Network) -> dict[str, object] | None:
    policy = network.of_experts("routing_policy") or "TopkRouterV1"
    plain = network.experts > 1 and not fuses_experts(network)
    return if_(plain and policy != "TopkRouterV2", policy=policy)


def _of_expert_ways(network: Network) -> dict[str, object] | None:
    within, ways = network.of_experts("expert_model_parallel"), network.ways("model_parallel")
    return if_(_has_plain_block(network) and within is not None and within not in (1, ways), within=within, ways=ways)


def _of_data_parallel(network: Network) -> dict[str, object] | None:
    return if_(network.experts > 1 and not fuses_experts(network) and network.is_data_parallel, experts=network.experts)


def _of_inner(network: Network) -> dict[str, object] | None:
    """The width of the feed-forward block; ``tp_x`` and ``tp_y`` split it in place of ``model_parallel``."""
    if not _has_plain_block(network) or network.is_three_dimensional:
        return None
    return rest(inner(network), network.ways("model_parallel"))


def _of_heads(name: str) -> Callable[[Network], dict[str, object] | None]:
    def broken(network: Network) -> dict[str, object] | None:
        ways = network.dimensions[1] if network.is_three_dimensional else network.ways("model_parallel")
        return rest(network.size(name), ways * network.ulysses) if isinstance(ways, int) else None

    return broken


def _key_heads(network: Network) -> int | None:
    return network.size("n_kv_heads") or network.size("num_heads")


def _block_of(size: Callable[[Network], int | None]) -> Callable[[Network], dict[str, object] | None]:
    """A size of the feed-forward block that tensor parallelism splits, unless MindSpore looks for a way itself."""
    return lambda network: None if network.propagates else rest(size(network), network.ways("model_parallel"))


def _switch(name: str, *, needs: Callable[[Network], bool]) -> Callable[[Network], dict[str, object] | None]:
    return lambda network: if_(network.on(name) and not needs(network), name=name)


def _not_above_zero(name: str) -> Callable[[Network], dict[str, object] | None]:
    def broken(network: Network) -> dict[str, object] | None:
        number = network.size(name)
        return if_(number is not None and number <= 0, name=name, number=number)

    return broken


def _flash(network: Network) -> bool:
    return network.on("use_flash_attention")


def _whole(network: Network) -> bool:
    return not network.splits_sequence


def _long(network: Network) -> bool:
    return (network.size("seq_length") or _MASK) >= _MASK


_RULES_OF_MODEL = (
    NetworkRule("zero", (*MODEL, "num_heads"), _not_above_zero("num_heads")),
    *(
        NetworkRule("flash", (*MODEL, name), _switch(name, needs=_flash))
        for name in ("use_ring_attention", "use_eod_attn_mask_compression")
    ),
    *(
        NetworkRule("parts", (*MODEL, name), _switch(name, needs=_whole))
        for name in ("use_ring_attention", "use_eod_attn_mask_compression")
    ),
    *(NetworkRule("short", (*MODEL, name), _switch(name, needs=_long)) for name in _MASKS),
)
_RULES_OF_LAYERS = (
    NetworkRule("zero", (*MODEL, "n_kv_heads"), _not_above_zero("n_kv_heads")),
    NetworkRule(
        "parts-flash",
        (PARALLEL, "seq_split_num"),
        lambda network: if_(network.splits_sequence and not _flash(network)),
    ),
    NetworkRule(
        "width", (*MODEL, "hidden_size"), lambda network: rest(network.size("hidden_size"), network.size("num_heads"))
    ),
)
_RULES_OF_PLAIN = (
    NetworkRule("heads", (*MODEL, "num_heads"), _of_heads("num_heads")),
    NetworkRule("key-heads", (*MODEL, "n_kv_heads"), _of_heads("n_kv_heads")),
    NetworkRule("inner", (*MODEL, "intermediate_size"), _of_inner),
    NetworkRule("routing", (EXPERTS, "routing_policy"), _of_routing),
    NetworkRule("expert-ways", (EXPERTS, "expert_model_parallel"), _of_expert_ways),
    NetworkRule("expert-ranks", (PARALLEL, "expert_parallel"), _ranks_of_experts),
    NetworkRule("expert-mode", ("parallel", "parallel_mode"), _of_data_parallel),
)
# Layers that compute and communicate in turn: heads are split by tensor parallelism alone, experts are not heard of.
_RULES_OF_INTERLEAVED = (
    NetworkRule(
        "key-heads", (*MODEL, "n_kv_heads"), lambda network: rest(_key_heads(network), network.ways("model_parallel"))
    ),
    NetworkRule("inner", (*MODEL, "intermediate_size"), _block_of(inner)),
    NetworkRule("outer", (*MODEL, "hidden_size"), _block_of(lambda network: network.size("hidden_size"))),
)
