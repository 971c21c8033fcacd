"""What the legacy Llama and ChatGLM networks (GLM2, GLM3, GLM4-9B) refuse while they are built (MindFormers 1.6 to 2.1).

``LlamaModel`` in ``mindformers/models/llama/llama.py``, ``LLamaAttention`` and ``LLamaDecodeLayer`` in ``llama_transformer.py``,
``LlamaFeedForward`` in ``llama_layer.py`` and ``LLamaDecodeLayerInterleave`` in ``llama_interleave.py`` beside it;
``LowerTriangularMaskWithDynamic``, ``MoEV2`` and ``MoEV3`` in ``mindformers/modules/transformer``; ``FreqsMgr`` in
``mindformers/modules/layers.py``. ``ChatGLM2Model`` in ``mindformers/models/glm2/glm2.py``, ``ChatGLM2SelfAttention`` in
``glm2_transformer.py`` and ``FreqsMgr`` in ``glm2_modules.py`` beside it; ``FlashAttention`` in ``mindformers/modules/flash_attention.py``.
Tensor parallelism over ``tp_x``, ``tp_y`` and ``tp_z``: ``check_use_3d_tensor_parallel_valid`` in ``mindformers/models/utils.py``. The
releases differ in none of the rules.

Sizes are those of ``model_config`` with the defaults of the network's configuration class; ways of splitting are those of
``parallel_config``, 1 where MindFormers sets them back to 1 (:mod:`ms_tune.dialects.mindformers.inputs`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindformers import inputs
from ms_tune.facts.models import UNKNOWN
from ms_tune.source.yaml import MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext


MODEL = ("model", "model_config")
PARALLEL = "parallel_config"
EXPERTS = "moe_config"
DIMENSIONS = ("tp_x", "tp_y", "tp_z")
_DATA_PARALLEL = (0, 3, "DATA_PARALLEL", "HYBRID_PARALLEL")  # `PARALLEL_MODE` in mindformers/tools/utils.py
_AUTOMATIC = (2, "AUTO_PARALLEL")


class Network(NamedTuple):
    """What the config says about the network; a number is None where it is not known."""

    context: CheckContext  # the config

    def get(self, name: str) -> object:
        """A value of the model, which its class may have where the config says nothing; None where there is none."""
        value: object = self.context.model.value(name)
        return None if value is UNKNOWN else value

    def size(self, name: str) -> int | None:
        """A number of the model, likewise."""
        return self.context.model.number(name)

    def on(self, name: str) -> bool:
        """Whether a switch of the model is on."""
        return bool(self.get(name))

    def ways(self, name: str) -> int:
        """A number of ``parallel_config``: 1 unless the network is split."""
        return (self.context.integer(f"{PARALLEL}.{name}", 1) or 1) if self.splits else 1

    def of_experts(self, name: str) -> object:
        """A value of ``moe_config``; None where there is none."""
        return self.context.get(f"{EXPERTS}.{name}")

    @property
    def splits(self) -> bool:
        """Whether MindSpore splits the network."""
        return inputs.splits(self.context)

    @property
    def splits_sequence(self) -> bool:
        """Whether the sequence goes through the pipeline in parts; this setting holds even if nothing else is split."""
        return (self.context.integer(f"{PARALLEL}.seq_split_num", 1) or 1) > 1

    @property
    def is_data_parallel(self) -> bool:
        """Whether every device has the whole network."""
        return inputs.is_parallel(self.context) and self.context.get("parallel.parallel_mode", 1) in _DATA_PARALLEL

    @property
    def propagates(self) -> bool:
        """Whether MindSpore finds most ways of splitting itself: ``auto_parallel`` by propagation, its default in MindFormers."""
        told = self.context.get("parallel.search_mode", "sharding_propagation") == "sharding_propagation"
        told = told or bool(self.context.get("parallel.sharding_propagation"))
        return self.splits and self.context.get("parallel.parallel_mode", 1) in _AUTOMATIC and told

    @property
    def ulysses(self) -> int:
        """Ranks of Ulysses context parallelism, which split heads as well."""
        context = self.ways("context_parallel")
        algorithm = self.context.get(f"{PARALLEL}.context_parallel_algo", "colossalai_cp")
        degree = self.context.integer(f"{PARALLEL}.ulysses_degree_in_cp", 1) or 1
        return {"ulysses_cp": context, "hybrid_cp": degree}.get(str(algorithm), 1) if context > 1 else 1

    @property
    def is_interleaved(self) -> bool:
        """Whether layers compute and communicate in turn, which is of use to tensor parallelism only."""
        return (self.size("fine_grain_interleave") or 1) > 1 and self.ways("model_parallel") > 1

    @property
    def experts(self) -> int:
        """Experts of a layer; 1 for a plain feed-forward block."""
        return self.context.integer(f"{EXPERTS}.expert_num", 1) or 1

    @property
    def is_three_dimensional(self) -> bool:
        """Whether tensor parallelism in three dimensions is asked for and means something."""
        return self.on("use_3d_tensor_parallel") and self.ways("model_parallel") > 1

    @property
    def dimensions(self) -> tuple[object, ...]:
        """The three numbers whose product is to be ``model_parallel``."""
        written = [self.context.source.get((*MODEL, name), MISSING) for name in DIMENSIONS]
        return tuple(1 if value is MISSING else value for value in written)


class NetworkRule(NamedTuple):
    """One rule: its name, where to point, and what the network has if it is broken; None if it is not."""

    name: str
    at: KeyPath
    broken: Callable[[Network], dict[str, object] | None]


def broken_rule(network: Network, rules: Iterable[NetworkRule]) -> Iterator[Violation]:
    """Where the network breaks the rule that the option ``rule`` names; it may be about several places."""
    for rule in rules:
        found = rule.broken(network) if rule.name == network.context.options["rule"] else None
        if found is not None:
            yield Violation(written(network.context, rule.at), params=found)


def if_(condition: object, **params: object) -> dict[str, object] | None:
    """The parameters if the rule is broken."""
    return params if condition else None


def rest(one: int | None, other: int | None, ways: int | None = None) -> dict[str, object] | None:
    """The two numbers, if the second does not divide the first."""
    return if_(one is not None and other and one % other, number=one, divisor=other, ways=ways or other)


def written(context: CheckContext, path: KeyPath) -> KeyPath:
    """The key path, if it is written, or else the innermost section above it that is."""
    while len(path) > 1:
        section = context.source.get(path[:-1])
        if isinstance(section, dict) and path[-1] in section:
            return path
        path = path[:-1]
    return path


_LLAMAS = (None, "LlamaForCausalLM", "LlamaModel")
_MASK = 2048  # tokens: the size of the compressed mask
_MASKS = ("use_attn_mask_compression", "use_eod_attn_mask_compression")


def find_refused_by_llama(context: CheckContext) -> Iterator[Violation]:
    """What the network refuses, settings that do not go together mostly, by the rule that is asked for."""
    if not is_llama(context):
        return
    network = Network(context)
    rules = list(_RULES_OF_MODEL)
    if network.size("num_layers") or 0:
        rules += _RULES_OF_LAYERS
        rules += _RULES_OF_INTERLEAVED if network.is_interleaved else _RULES_OF_PLAIN
    yield from broken_rule(network, rules)


def _uneven_key_heads(context: CheckContext) -> Iterator[Violation]:
    """Heads of keys and values that the attention heads cannot share evenly.

    The network is built; ``FlashAttentionScore`` and the plain product of matrices refuse the shapes when it is compiled.
    """
    network = Network(context)
    heads, key_heads = network.size("num_heads"), network.size("n_kv_heads")
    if is_llama(context) and heads and key_heads and key_heads > 0 and heads % key_heads:
        yield Violation((*MODEL, "n_kv_heads"), params={"heads": heads, "key_heads": key_heads})


def find_dropped_experts(context: CheckContext) -> Iterator[Violation]:
    """Experts beside ``fine_grain_interleave``: such layers have a plain feed-forward block and are not told of experts."""
    network = Network(context)
    if is_llama(context) and network.is_interleaved and network.experts > 1:
        related = (((*MODEL, "fine_grain_interleave"), "interleave"),)
        yield Violation((EXPERTS, "expert_num"), params={"experts": network.experts}, related=related)


def find_ignored_interleave(context: CheckContext) -> Iterator[Violation]:
    """``fine_grain_interleave`` without tensor parallelism, which has nothing to communicate (``check_fine_grain_interleave_valid``)."""
    network = Network(context)
    wanted = (network.size("fine_grain_interleave") or 1) > 1
    if is_llama(context) and wanted and not network.is_interleaved:
        yield Violation((*MODEL, "fine_grain_interleave"))


def is_llama(context: CheckContext) -> bool:
    """Whether the config is one of the legacy Llama network, and says all about it."""
    named = context.get("model.arch.type") in _LLAMAS and context.get("model.model_config.type") == "LlamaConfig"
    return inputs.is_legacy(context) and named and not context.get("pretrained_model_dir")


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
_SWITCH = (*MODEL, "use_3d_tensor_parallel")


def find_refused_dimensions(context: CheckContext) -> Iterator[Violation]:
    """What does not go with tensor parallelism in three dimensions, by the rule that is asked for."""
    network = Network(context)
    if not is_llama(context) or not network.on("use_3d_tensor_parallel"):
        return
    yield from broken_rule(network, _RULES_OF_DIMENSIONS)
    if network.is_three_dimensional:
        of_layers = _RULES_OF_DIMENSION_LAYERS if network.size("num_layers") else ()
        yield from broken_rule(network, (_PRODUCT,) if _PRODUCT.broken(network) else of_layers)


def find_ignored_dimensions(context: CheckContext) -> Iterator[Violation]:
    """The switch without tensor parallelism, or numbers without the switch: nothing is split in three dimensions."""
    network = Network(context)
    if not is_llama(context):
        return
    if network.on("use_3d_tensor_parallel"):
        if not network.is_three_dimensional:
            yield Violation(_SWITCH)
        return
    for name in DIMENSIONS:
        if context.source.get((*MODEL, name), MISSING) not in (MISSING, None, 1):
            yield Violation((*MODEL, name), "number", {"name": name})


def _product(network: Network) -> dict[str, object] | None:
    ways, numbers = network.ways("model_parallel"), network.dimensions
    whole = [number for number in numbers if isinstance(number, int)]
    product = math.prod(whole)
    shown = " x ".join(map(str, numbers))
    return if_(len(whole) < len(numbers) or product != ways, product=shown, ways=ways)


def _not_divided(size: Callable[[Network], int | None]) -> Callable[[Network], dict[str, object] | None]:
    """A size of the feed-forward block that ``tp_x`` and ``tp_y`` each have to divide."""

    def broken(network: Network) -> dict[str, object] | None:
        found = (rest(size(network), ways) for ways in network.dimensions[:2] if isinstance(ways, int))
        return next((one for one in found if one), None)

    return broken


def _compressed_in_dimensions(network: Network) -> dict[str, object] | None:
    return if_(network.on("use_eod_attn_mask_compression") and not network.on("use_ring_attention"))


def _not_fused(network: Network) -> dict[str, object] | None:
    return if_(network.context.source.get((*MODEL, "fused_rms_norm"), default=True) in (False, None, 0))


_RULES_OF_DIMENSIONS = (
    NetworkRule("flash", _SWITCH, lambda network: if_(not network.on("use_flash_attention"))),
    NetworkRule("ulysses", (PARALLEL, "context_parallel_algo"), lambda network: if_(network.ulysses > 1)),
    NetworkRule("automatic", ("parallel", "parallel_mode"), lambda network: if_(network.propagates)),
    NetworkRule("experts", (EXPERTS, "expert_num"), lambda network: if_(network.experts > 1)),
    NetworkRule(
        "sequence", (PARALLEL, "use_seq_parallel"), lambda network: if_(not inputs.splits_sequence(network.context))
    ),
    NetworkRule("interleave", (*MODEL, "fine_grain_interleave"), lambda network: if_(network.is_interleaved)),
)
_PRODUCT = NetworkRule("product", (*MODEL, "tp_x"), _product)
_RULES_OF_DIMENSION_LAYERS = (
    NetworkRule("inner", (*MODEL, "intermediate_size"), _not_divided(inner)),
    NetworkRule("outer", (*MODEL, "hidden_size"), _not_divided(lambda network: network.size("hidden_size"))),
    NetworkRule("compressed", (*MODEL, "use_eod_attn_mask_compression"), _compressed_in_dimensions),
    NetworkRule("norm", (*MODEL, "rmsnorm_compute_2d"), lambda network: if_(network.on("rmsnorm_compute_2d"))),
    NetworkRule("fused", (*MODEL, "fused_rms_norm"), _not_fused),
)


def find_refused_experts(context: CheckContext) -> Iterator[Violation]:
    """A setting that does not go with grouped or shared experts, by the rule that is asked for."""
    network = Network(context)
    if not is_llama(context) or not network.size("num_layers") or network.is_interleaved:
        return
    if network.experts == 1:
        yield from broken_rule(network, (_NO_BLOCK,))
        return
    if fuses_experts(network) or shared_experts(network):
        yield from broken_rule(network, (_UNSAID,))
    if fuses_experts(network):
        yield from broken_rule(network, _RULES_OF_GROUPS)
    if shared_experts(network):
        yield from broken_rule(network, (_SHARED,))


def _without_block(network: Network) -> dict[str, object] | None:
    """One expert is a plain block, which is left out for the sake of experts that are not there.

    A network that is split asks for it at once, any other when it is compiled.
    """
    return if_(fuses_experts(network) or shared_experts(network))


def _ranks(network: Network) -> dict[str, object] | None:
    ranks, ways = network.ways("data_parallel") * network.ways("model_parallel"), network.ways("expert_parallel")
    return rest(ranks, ways)


def _per_device(network: Network) -> int | None:
    """``npu_nums_per_device``, the ranks of the inner of two steps of communication."""
    return network.context.integer(f"{EXPERTS}.npu_nums_per_device", 1)


def _few_ranks(network: Network) -> dict[str, object] | None:
    inside, ways = _per_device(network), network.ways("expert_parallel")
    wanted = bool(network.of_experts("enable_deredundency"))
    return if_(wanted and inside is not None and inside > ways, inside=inside, ways=ways)


def _shared_width(network: Network) -> dict[str, object] | None:
    """Shared experts are one wide block, which tensor parallelism splits unless sequence parallelism has its ranks."""
    width, number = network.size("intermediate_size"), shared_experts(network)
    if width is None or not isinstance(number, int) or inputs.splits_sequence(network.context):
        return None
    return rest(width * number, network.ways("model_parallel"))


_NO_BLOCK = NetworkRule("no-experts", (EXPERTS, "expert_num"), _without_block)
_UNSAID = NetworkRule(
    "unsaid", (*MODEL, "intermediate_size"), lambda network: if_(network.get("intermediate_size") is None)
)
_SHARED = NetworkRule("shared-width", (*MODEL, "intermediate_size"), _shared_width)
_RULES_OF_GROUPS = (
    NetworkRule("parts", (PARALLEL, "seq_split_num"), lambda network: if_(network.splits_sequence)),
    NetworkRule("ranks", (PARALLEL, "expert_parallel"), _ranks),
    NetworkRule("few-ranks", (EXPERTS, "npu_nums_per_device"), _few_ranks),
    NetworkRule("no-ranks", (EXPERTS, "npu_nums_per_device"), lambda network: if_(_per_device(network) == 0)),
)
_GLMS = ("ChatGLM2ForConditionalGeneration", "ChatGLM2Model", "ChatGLM2WithPtuning2")


def find_refused_by_glm(context: CheckContext) -> Iterator[Violation]:
    """What the network refuses, settings that do not go together mostly, by the rule that is asked for."""
    if not is_glm(context):
        return
    network = Network(context)
    layers = network.size("num_layers") or 0
    yield from broken_rule(network, (*_RULES_OF_GLM, *_RULES_OF_GLM_LAYERS) if layers else _RULES_OF_GLM)


def _uneven_groups(context: CheckContext) -> Iterator[Violation]:
    """Groups of attention heads that are not of one size: no error before the network is compiled."""
    network = Network(context)
    heads, groups = network.size("num_attention_heads"), network.size("multi_query_group_num")
    if is_glm(context) and heads and groups and groups > 0 and heads % groups:
        yield Violation((*MODEL, "multi_query_group_num"), params={"heads": heads, "key_heads": groups})


def is_glm(context: CheckContext) -> bool:
    """Whether the config is one of the legacy ChatGLM network, and says all about it."""
    named = context.get("model.arch.type") in _GLMS and context.get("model.model_config.type") == "ChatGLM2Config"
    return inputs.is_legacy(context) and named and not context.get("pretrained_model_dir")


def _ungrouped(network: Network) -> dict[str, object] | None:
    """Without groups of heads the number of key heads is never set, and asked for all the same."""
    return if_(network.context.source.get((*MODEL, "multi_query_attention"), default=True) in (False, None, 0))


def _of_parts(*, without: Callable[[Network], bool]) -> Callable[[Network], dict[str, object] | None]:
    return lambda network: if_(network.splits_sequence and without(network))


def _few_heads(network: Network) -> dict[str, object] | None:
    heads = network.size("num_attention_heads")
    return if_(heads is not None and 0 < heads < network.ulysses, heads=heads, ways=network.ulysses)


def _compressed_glm(network: Network) -> dict[str, object] | None:
    """``sparse_mode`` 3, which ``FlashAttention`` does not split; with few key heads it is split by a way around it."""
    groups = network.size("multi_query_group_num")
    ways = network.ways("model_parallel") * network.ulysses
    wanted = network.on("use_flash_attention") and network.get("mask_generate") == "compress_reset"
    return if_(wanted and groups is not None and groups >= ways)


_PARTS = (PARALLEL, "seq_split_num")
_RULES_OF_GLM = (
    NetworkRule("zero", (*MODEL, "num_attention_heads"), _not_above_zero("num_attention_heads")),
    NetworkRule("parts-ring", _PARTS, _of_parts(without=lambda network: network.on("use_ring_attention"))),
    NetworkRule("parts-rope", _PARTS, _of_parts(without=lambda network: not network.on("use_rearrange_rope"))),
)
_RULES_OF_GLM_LAYERS = (
    NetworkRule("zero", (*MODEL, "multi_query_group_num"), _not_above_zero("multi_query_group_num")),
    NetworkRule("ungrouped", (*MODEL, "multi_query_attention"), _ungrouped),
    NetworkRule("parts-flash", _PARTS, _of_parts(without=lambda network: not network.on("use_flash_attention"))),
    NetworkRule("few-heads", (PARALLEL, "context_parallel"), _few_heads),
    NetworkRule("compressed", (*MODEL, "mask_generate"), _compressed_glm),
)
