"""Texts that place layers: ``--noop-layers 0,7`` and ``--pipeline-num-transformer-layers [[3],[5]]``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.dialects.megatron.inputs import MOST_LAYERS
from ms_tune.dialects.megatron.refusal import fail, require

if TYPE_CHECKING:
    from ms_tune.dialects.megatron.inputs import MegatronInputs

_TOKEN = re.compile(r"\d+|\*|\[|\]")
_MOST_TOKENS = 1_000
_DEEPEST = 4  # a table has two


def parse_noop(inputs: MegatronInputs) -> frozenset[int]:
    """The layers that do nothing (``NoopLayersFeature.post_validate_args`` of MindSpeed, ``noop_layers.py``).

    Raises:
        FrameworkStop: The text is no list of such layers.
    """
    if inputs.noop is None:
        return frozenset()
    found = set()
    for part in inputs.noop.split(","):
        if not part.isdecimal():
            fail("noop-digits", part=part)
        layer = int(part[:9]) if len(part) > 9 else int(part)  # noqa: PLR2004 - no layer has a longer number
        require(layer < inputs.layers, "noop-beyond", inputs=inputs)
        found.add(layer)
    return frozenset(found)


def parse_table(text: str) -> tuple[tuple[int, ...], ...]:
    """Layers of each stage and chunk (``parse_string_to_array`` of MindSpeed): ``[[3],[5]]``, ``[[2,2]*2]``.

    Raises:
        FrameworkStop: The text is no table.
    """
    tokens = _TOKEN.findall(text)[:_MOST_TOKENS]
    found, _ = _level(tokens, 0, 0)
    rows = found[0] if found else []
    if not isinstance(rows, list):
        fail("table-form")
    counts = []
    for row in rows:
        if not isinstance(row, list) or any(isinstance(one, list) for one in row):
            fail("table-form")
        counts.append(tuple(one for one in row if isinstance(one, int)))
    return tuple(counts)


def _level(tokens: list[str], at: int, depth: int) -> tuple[list[object], int]:
    """What stands between two brackets, and where it ends; deeper than any table it is refused."""
    stack: list[object] = []
    while at < len(tokens):
        mark = tokens[at]
        at += 1
        if mark == "[":
            if depth > _DEEPEST:
                fail("table-form")
            inner, at = _level(tokens, at, depth + 1)
            stack.append(inner)
        elif mark == "]":
            return stack, at
        elif mark == "*":
            if at >= len(tokens) or not tokens[at].isdecimal() or not stack:
                fail("table-repeats")
            last = stack.pop()
            stack.extend([last] * min(int(tokens[at][:9]), MOST_LAYERS))
            at += 1
        else:
            stack.append(min(int(mark[:9]), MOST_LAYERS))
    return stack, at
