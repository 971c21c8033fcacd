"""Replace valid values by wrong ones."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.sampled_from([0.5, float("inf"), "", "auto", "4", "58GB", "1e-5", 10**30]),
    st.lists(st.none() | st.integers(-1, 3) | st.text(max_size=2), max_size=3),
    st.dictionaries(st.sampled_from(["a", "num_experts", "use_lora"]), st.none() | st.integers(0, 3), max_size=2),
)


def paths(node: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield every key path of a config, including the empty one."""
    if path:
        yield path
    items: Any = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from paths(value, (*path, key))


def replaced(config: dict[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """Return a copy with another value at one path."""
    made = copy.deepcopy(config)
    node: Any = made
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    return made
