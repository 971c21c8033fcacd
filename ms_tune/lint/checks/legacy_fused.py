"""Checks of experts that are multiplied in groups (``use_gmm``), and of shared ones, in the legacy Llama network (1.6 to 2.1).

``MoEV3`` in ``mindformers/modules/transformer/moev3.py``; ``LlamaFeedForwardWithMoE`` in ``models/llama/llama_layer.py``
and ``LLamaDecodeLayer`` in ``llama_transformer.py`` beside it, which decides between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.mindformers import startup
from ms_tune.lint.checks.legacy_llama import fuses_experts, is_llama, network_of, shared_experts
from ms_tune.lint.checks.legacy_network import EXPERTS, MODEL, PARALLEL, Network, NetworkRule, broken_rule, if_, rest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext, Violation


def refused(context: CheckContext) -> Iterator[Violation]:
    """A setting that does not go with grouped or shared experts, by the rule that is asked for."""
    network = network_of(context)
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
    if width is None or not isinstance(number, int) or startup.splits_sequence(network.context):
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
