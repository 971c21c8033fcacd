r"""Names of operators on their way from one dialect to another.

The static graph of MindFormers parts the levels of a path with ``\.``; its dynamic graph matches the whole path; and
MindSpeed-Core-MS has one operator that it recomputes, which cannot be chosen. Frameworks name their modules
differently, so a name that is carried over has to be looked at.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.layers.patterns import compile_segment
from ms_tune.layers.plans import MINDFORMERS_PYNATIVE, MINDSPEED_MS
from ms_tune.layers.pynative.modules import is_plain

if TYPE_CHECKING:
    from ms_tune.layers.plans import NormalizedPlan

# What MindSpeed-Core-MS r0.1.0 recomputes, by the names of MindFormers' dynamic graph (TransformerLayer, MLP).
_MINDSPEED_NAMES = {
    "attention.core_attention": "self_attention.core_attention",
    "mlp.act_func": "mlp.activation_func",
    "ColumnParallelLinear.all_gather": "self_attention.linear_qkv.all_gather",
}
_TOKEN = re.compile(r"\\.|\[[^\]]*\]|\.")
_ANY_IN_LEVEL = "[^.]"
# What matches a dot as well, and so the border between two levels.
_CROSSES = re.compile(r"\[\^|\\[WDS]")


def carried_patterns(plan: NormalizedPlan, attribute: str, to: str) -> tuple[dict[str, str] | None, list[str]]:
    """The patterns of a plan and what they are called in another dialect.

    Args:
        plan: The plan.
        attribute: The attribute of its layers that holds the patterns.
        to: The other dialect, not ``mindspeed-ms``.

    Returns:
        The names by pattern, or None where the other framework's own choice of operators has to do; and the patterns
        that cannot be carried over.
    """
    found = dict.fromkeys(pattern for layer in plan.layers for pattern in getattr(layer, attribute))
    if plan.dialect == to:
        return {pattern: pattern for pattern in found}, []
    if to == MINDFORMERS_PYNATIVE:
        if plan.dialect == MINDSPEED_MS:
            return {pattern: _MINDSPEED_NAMES[pattern] for pattern in found}, []
        # The dynamic graph takes no blank pattern, and reads the whole of one, not level by level as far as it gets.
        carried = {
            pattern: dynamic_pattern(pattern) for pattern in found if pattern.strip() and _is_expression(pattern)
        }
        return carried, [pattern for pattern in found if pattern not in carried]
    if plan.dialect == MINDSPEED_MS:
        return None, []
    names = {pattern: static_pattern(pattern) for pattern in found}
    carried = {pattern: name for pattern, name in names.items() if name is not None}
    return carried, [pattern for pattern, name in names.items() if name is None]


def dynamic_pattern(pattern: str) -> str:
    """A pattern of the static graph for the dynamic one.

    In the static graph a dot without a backslash stays inside one level; in the dynamic graph it has to be told to.
    """
    return _TOKEN.sub(lambda token: _ANY_IN_LEVEL if token[0] == "." else token[0], pattern)


def static_pattern(pattern: str) -> str | None:
    r"""A pattern of the dynamic graph, taken apart into levels; None if it may match paths of several depths."""
    if is_plain(pattern):
        return pattern.replace(".", r"\.")
    levels = pattern.replace(_ANY_IN_LEVEL, "\0").split(r"\.")
    if any("." in level or _CROSSES.search(level) or not _is_expression(level) for level in levels):
        return None
    return r"\.".join(levels).replace("\0", ".")


def _is_expression(level: str) -> bool:
    try:
        compile_segment(level.replace("\0", "."))
    except re.error:
        return False
    return True
