"""Checks of ``moe_config``, the mixture of experts of legacy models (``MoEConfig`` of MindFormers 1.6 to 2.1).

The class checks its values whenever the section is there, even for one expert
(``mindformers/modules/transformer/moe.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ms_tune.dialects.check_context import CheckContext

_SECTION = "moe_config"
# The type, the least value, and whether it has to be above it. A float is no int here, and the other way round.
_NUMBERS: dict[str, tuple[type[int | float], bool]] = {
    "expert_num": (int, True),
    "num_experts_chosen": (int, True),
    "comp_comm_parallel_degree": (int, True),
    "update_step": (int, True),
    "expert_group_size": (int, True),
    "cur_layer": (int, False),
    "hot_expert_num": (int, False),
    "aux_loss_factor": (float, True),
    "cold_token_percent": (float, True),
}
_OPTIONAL = ("expert_group_size",)
_SWITCHES = (
    "group_wise_a2a",
    "comp_comm_parallel",
    "save_token_distribution",
    "enable_cold_hot_expert",
    "ep_extend_tp",
)
_ROUTER_TYPES = ("float16", "float32", "bfloat16")
_LOSSES = ("expert", "device", "comm")


def values(context: CheckContext) -> Iterator[Violation]:
    """A value of the wrong type, or out of range."""
    section = context.mapping(_SECTION)
    for name, (kind, above) in _NUMBERS.items():
        if name not in section or (section[name] is None and name in _OPTIONAL):
            continue
        value = section[name]
        if isinstance(value, bool) or not isinstance(value, kind):
            yield Violation((_SECTION, name), params={"wanted": kind.__name__})
        elif value < 0 or (above and value == 0):
            yield Violation((_SECTION, name), "small")
    for name in _SWITCHES:
        if name in section and not isinstance(section[name], bool):
            yield Violation((_SECTION, name), params={"wanted": "bool"})
    for name in ("aux_loss_factor", "cold_token_percent"):
        value = section.get(name)
        if isinstance(value, float) and (value > 1 or (value == 1 and name == "aux_loss_factor")):
            yield Violation((_SECTION, name), "large")
    if section.get("router_dense_type", "float32") not in _ROUTER_TYPES:
        yield Violation((_SECTION, "router_dense_type"), "router", {"choices": ", ".join(_ROUTER_TYPES)})
    yield from _relations(context, section)


def _relations(context: CheckContext, section: Mapping[object, object]) -> Iterator[Violation]:
    experts = context.integer(f"{_SECTION}.expert_num", 1)
    for name, default in (("num_experts_chosen", 1), ("hot_expert_num", 0)):
        number = context.integer(f"{_SECTION}.{name}", default)
        if experts is not None and number is not None and number > experts > 0:
            place = name if name in section else "expert_num"
            yield Violation((_SECTION, place), "experts", {"name": name, "number": number, "experts": experts})
    kinds, factors = section.get("aux_loss_types"), section.get("aux_loss_factors")
    if kinds is None:
        return
    if not isinstance(kinds, list) or not isinstance(factors, list):
        yield Violation((_SECTION, "aux_loss_types"), "losses")
    elif any(kind not in _LOSSES for kind in kinds):
        yield Violation((_SECTION, "aux_loss_types"), "loss", {"choices": ", ".join(_LOSSES)})
