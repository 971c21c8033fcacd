"""Checks of ``use_3d_tensor_parallel``: tensor parallelism over ``tp_x``, ``tp_y`` and ``tp_z`` (legacy Llama, 1.6 to 2.1).

``check_use_3d_tensor_parallel_valid`` in ``mindformers/models/utils.py``; ``LLamaDecodeLayer`` in
``models/llama/llama_transformer.py``, ``LlamaFeedForward`` and ``LlamaRMSNorm`` in ``llama_layer.py`` beside it and
``FlashAttention`` in ``modules/flash_attention.py``, which the layers of such a network go through.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindformers import startup
from ms_tune.lint.checks.legacy_llama import inner, is_llama, network_of
from ms_tune.lint.checks.legacy_network import (
    DIMENSIONS,
    EXPERTS,
    MODEL,
    PARALLEL,
    Network,
    NetworkRule,
    broken_rule,
    if_,
    rest,
)
from ms_tune.source.yaml import MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ms_tune.dialects.check_context import CheckContext

_SWITCH = (*MODEL, "use_3d_tensor_parallel")


def refused(context: CheckContext) -> Iterator[Violation]:
    """What does not go with tensor parallelism in three dimensions, by the rule that is asked for."""
    network = network_of(context)
    if not is_llama(context) or not network.on("use_3d_tensor_parallel"):
        return
    yield from broken_rule(network, _RULES)
    if network.is_three_dimensional:
        of_layers = _RULES_OF_LAYERS if network.size("num_layers") else ()
        yield from broken_rule(network, (_PRODUCT,) if _PRODUCT.broken(network) else of_layers)


def ignored(context: CheckContext) -> Iterator[Violation]:
    """The switch without tensor parallelism, or numbers without the switch: nothing is split in three dimensions."""
    network = network_of(context)
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


def _compressed(network: Network) -> dict[str, object] | None:
    return if_(network.on("use_eod_attn_mask_compression") and not network.on("use_ring_attention"))


def _not_fused(network: Network) -> dict[str, object] | None:
    return if_(network.context.source.get((*MODEL, "fused_rms_norm"), default=True) in (False, None, 0))


_RULES = (
    NetworkRule("flash", _SWITCH, lambda network: if_(not network.on("use_flash_attention"))),
    NetworkRule("ulysses", (PARALLEL, "context_parallel_algo"), lambda network: if_(network.ulysses > 1)),
    NetworkRule("automatic", ("parallel", "parallel_mode"), lambda network: if_(network.propagates)),
    NetworkRule("experts", (EXPERTS, "expert_num"), lambda network: if_(network.experts > 1)),
    NetworkRule(
        "sequence", (PARALLEL, "use_seq_parallel"), lambda network: if_(not startup.splits_sequence(network.context))
    ),
    NetworkRule("interleave", (*MODEL, "fine_grain_interleave"), lambda network: if_(network.is_interleaved)),
)
_PRODUCT = NetworkRule("product", (*MODEL, "tp_x"), _product)
_RULES_OF_LAYERS = (
    NetworkRule("inner", (*MODEL, "intermediate_size"), _not_divided(inner)),
    NetworkRule("outer", (*MODEL, "hidden_size"), _not_divided(lambda network: network.size("hidden_size"))),
    NetworkRule("compressed", (*MODEL, "use_eod_attn_mask_compression"), _compressed),
    NetworkRule("norm", (*MODEL, "rmsnorm_compute_2d"), lambda network: if_(network.on("rmsnorm_compute_2d"))),
    NetworkRule("fused", (*MODEL, "fused_rms_norm"), _not_fused),
)
