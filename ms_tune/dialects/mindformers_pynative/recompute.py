"""Which modules of which layers a pattern reaches in the dynamic graph of MindFormers 2.0 and 2.1.

The rules are those of ``_expand_select_module``, ``_clean_and_parse_config`` and ``_clean_and_parse_comm_config`` in
``mindformers/pynative/distributed/activation_checkpoint.py``: a pattern is a regular expression that must match the
whole dotted path inside one layer (``self_attention.linear_qkv``), where a plain dot is any character.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from ms_tune.dialects.layer_plan import parse_specs, stop
from ms_tune.dialects.values import compile_segment, full_match
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

# Paths inside each layer, in the order in which the framework collects them.
Modules: TypeAlias = "Mapping[int, Sequence[str]]"


def expand(
    patterns: Iterable[tuple[str, Any]],
    layers: AbstractSet[int],
    modules: Modules | None,
    *,
    keeps: bool = False,
) -> tuple[dict[int, list[str]], dict[str, dict[int, bool]]]:
    """The modules of each layer that are reached; and for each pattern whether it reaches any, by layer.

    Args:
        patterns: Patterns and their lists of layers.
        layers: The layers that are built; others are passed over.
        modules: The modules of each layer. Without them a pattern stands for whatever it may match.
        keeps: Whether a pattern that matches none of them stands for whatever else it may match.

    Raises:
        FrameworkStop: A list of layers cannot be read, or a pattern is no regular expression.
    """
    found: dict[int, list[str]] = {}
    reaches: dict[str, dict[int, bool]] = {}
    for pattern, specs in patterns:
        hits = reaches.setdefault(pattern, {})
        for layer in parse_specs(specs):
            if layer not in layers:
                continue
            _check(pattern)
            reached = [pattern]
            if modules is not None:
                reached = [path for path in modules.get(layer, ()) if full_match(pattern, path)]
                reached = reached or [pattern] * keeps
            hits[layer] = bool(reached)
            names = found.setdefault(layer, []) if reached else []
            names += [name for name in reached if name not in names]
    return found, reaches


def _check(pattern: str) -> None:
    try:
        compile_segment(pattern)
    except re.error:
        # The words are those of the module regex, which MindFormers uses and ms-tune does without.
        stop("regex.error", "", msg("plans.why.not-a-pattern", pattern=pattern))


def without_children(found: Mapping[int, Sequence[str]], full: AbstractSet[int]) -> dict[int, list[str]]:
    """Leave out layers that are taken as a whole, and modules inside a module that is taken."""
    kept: dict[int, list[str]] = {}
    for layer, names in found.items():
        if layer in full:
            continue
        chosen: list[str] = []
        for name in sorted(names, key=lambda name: (name.count("."), name)):
            if not _covered(name, chosen):
                chosen.append(name)
        kept[layer] = chosen
    return kept


def without_covered(
    found: Mapping[int, Sequence[str]], full: AbstractSet[int], parents: Mapping[int, Sequence[str]]
) -> dict[int, list[str]]:
    """Leave out layers that are taken as a whole, and modules inside those of another choice."""
    kept = {
        layer: [name for name in names if not _covered(name, parents.get(layer, ()))]
        for layer, names in found.items()
        if layer not in full
    }
    return {layer: names for layer, names in kept.items() if names}


def _covered(name: str, parents: Iterable[str]) -> bool:
    return any(name.startswith(f"{parent}.") for parent in parents)
