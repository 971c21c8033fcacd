"""Checks of what the legacy ChatGLM network (GLM2, GLM3, GLM4-9B) refuses while it is built (MindFormers 1.6 to 2.1).

``ChatGLM2Model`` in ``mindformers/models/glm2/glm2.py``, ``ChatGLM2SelfAttention`` in ``glm2_transformer.py`` and
``FreqsMgr`` in ``glm2_modules.py`` beside it; ``FlashAttention`` in ``mindformers/modules/flash_attention.py``. The
releases differ in none of the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindformers import startup
from ms_tune.lint.checks.legacy_network import MODEL, PARALLEL, Network, NetworkRule, broken_rule, if_

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ms_tune.dialects.check_context import CheckContext

_NETWORKS = ("ChatGLM2ForConditionalGeneration", "ChatGLM2Model", "ChatGLM2WithPtuning2")


def refused(context: CheckContext) -> Iterator[Violation]:
    """What the network refuses, settings that do not go together mostly, by the rule that is asked for."""
    if not is_glm(context):
        return
    network = _network_of(context)
    layers = network.size("num_layers") or 0
    yield from broken_rule(network, (*_RULES_OF_MODEL, *_RULES_OF_LAYERS) if layers else _RULES_OF_MODEL)


def uneven_groups(context: CheckContext) -> Iterator[Violation]:
    """Groups of attention heads that are not of one size: no error before the network is compiled."""
    network = _network_of(context)
    heads, groups = network.size("num_attention_heads"), network.size("multi_query_group_num")
    if is_glm(context) and heads and groups and groups > 0 and heads % groups:
        yield Violation((*MODEL, "multi_query_group_num"), params={"heads": heads, "key_heads": groups})


def is_glm(context: CheckContext) -> bool:
    """Whether the config is one of the legacy ChatGLM network, and says all about it."""
    named = context.get("model.arch.type") in _NETWORKS and context.get("model.model_config.type") == "ChatGLM2Config"
    return startup.is_legacy(context) and named and not context.get("pretrained_model_dir")


def _network_of(context: CheckContext) -> Network:
    return Network(context)


def _ungrouped(network: Network) -> dict[str, object] | None:
    """Without groups of heads the number of key heads is never set, and asked for all the same."""
    return if_(network.context.source.get((*MODEL, "multi_query_attention"), default=True) in (False, None, 0))


def _of_parts(*, without: Callable[[Network], bool]) -> Callable[[Network], dict[str, object] | None]:
    return lambda network: if_(network.splits_sequence and without(network))


def _few_heads(network: Network) -> dict[str, object] | None:
    heads = network.size("num_attention_heads")
    return if_(heads is not None and 0 < heads < network.ulysses, heads=heads, ways=network.ulysses)


def _compressed(network: Network) -> dict[str, object] | None:
    """``sparse_mode`` 3, which ``FlashAttention`` does not split; with few key heads it is split by a way around it."""
    groups = network.size("multi_query_group_num")
    ways = network.ways("model_parallel") * network.ulysses
    wanted = network.on("use_flash_attention") and network.get("mask_generate") == "compress_reset"
    return if_(wanted and groups is not None and groups >= ways)


def _not_above_zero(name: str) -> Callable[[Network], dict[str, object] | None]:
    def broken(network: Network) -> dict[str, object] | None:
        number = network.size(name)
        return if_(number is not None and number <= 0, name=name, number=number)

    return broken


_PARTS = (PARALLEL, "seq_split_num")
_RULES_OF_MODEL = (
    NetworkRule("zero", (*MODEL, "num_attention_heads"), _not_above_zero("num_attention_heads")),
    NetworkRule("parts-ring", _PARTS, _of_parts(without=lambda network: network.on("use_ring_attention"))),
    NetworkRule("parts-rope", _PARTS, _of_parts(without=lambda network: not network.on("use_rearrange_rope"))),
)
_RULES_OF_LAYERS = (
    NetworkRule("zero", (*MODEL, "multi_query_group_num"), _not_above_zero("multi_query_group_num")),
    NetworkRule("ungrouped", (*MODEL, "multi_query_attention"), _ungrouped),
    NetworkRule("parts-flash", _PARTS, _of_parts(without=lambda network: not network.on("use_flash_attention"))),
    NetworkRule("few-heads", (PARALLEL, "context_parallel"), _few_heads),
    NetworkRule("compressed", (*MODEL, "mask_generate"), _compressed),
)
