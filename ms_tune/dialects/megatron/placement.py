"""Which layers each stage and chunk builds, and the numbers that the frameworks give them.

A layer has three numbers, which are the same where every stage has as many layers as every other:

- its place: the how many-eth layer it is on the way from the embedding to the loss;
- the number by which it is looked up in ``--noop-layers`` and ``--first-k-dense-replace``: ``_get_layer_offset`` of MindSpeed
  (``mindspeed/core/transformer/transformer_block.py``), which knows equal shares only;
- ``layer_number``, by which norms and activations are recomputed: ``get_transformer_layer_offset`` of Megatron-LM
  (``megatron/core/transformer/transformer_layer.py``), or that of dualpipev (``dualpipev_chunks.py``). It knows nothing of
  ``--num-layer-list`` and ``--pipeline-num-transformer-layers``: what MindSpeed puts in its place for them
  (``TransformerLayer._get_layer_offset``) is asked by nobody since core_v0.12.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.dialects.megatron.inputs import MOST_LAYERS, fail, require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.megatron.inputs import MegatronInputs, Settled


@dataclass(frozen=True, slots=True)
class StageChunk:
    """The layers of one chunk of one stage."""

    stage: int
    chunk: int
    count: int  # how many layers it builds
    place: int  # the place of its first layer
    looked_up: int  # the number of its first layer in the lists of layers
    number: int  # `layer_number` of its first layer, counted from 0


def place(inputs: MegatronInputs, settled: Settled) -> tuple[StageChunk, ...]:
    """The cells in the order in which the layers run through them.

    Raises:
        FrameworkStop: A stage cannot be built.
    """
    found = []
    at = 0
    for chunk, stage in order(inputs, settled):
        count = _count(inputs, settled, stage, chunk)
        looked_up, number = _looked_up(inputs, settled, stage, chunk), _number(inputs, settled, stage, chunk)
        found.append(StageChunk(stage, chunk, count, at, looked_up, number))
        at += count
    return tuple(found)


def order(inputs: MegatronInputs, settled: Settled) -> Iterator[tuple[int, int]]:
    """Every (chunk, stage) on the way of the layers; with dualpipev the second chunk runs back."""
    for stage in range(inputs.stages):
        yield 0, stage
    if inputs.schedule == "dualpipev":
        for stage in reversed(range(inputs.stages)):
            yield 1, stage
    for chunk in range(1, settled.chunks or 1):
        for stage in range(inputs.stages):
            yield chunk, stage


def _count(inputs: MegatronInputs, settled: Settled, stage: int, chunk: int) -> int:
    """``get_num_layers_to_build``, of Megatron-LM or of what the arguments put in its place."""
    if settled.table is not None:
        return settled.table[stage][chunk]
    if settled.layer_list is not None:
        return settled.layer_list[stage]
    if inputs.schedule == "dualpipev":
        return inputs.layers // inputs.stages // 2
    return _of_megatron(inputs, settled, stage, chunk)


def _of_megatron(inputs: MegatronInputs, settled: Settled, stage: int, chunk: int) -> int:
    chunks = settled.chunks
    if inputs.first is not None or inputs.last is not None:
        share = _uneven(inputs, stage)
    else:
        number = inputs.layers + inputs.embedding + inputs.loss
        require(number % inputs.stages == 0, "block-by-stages")
        share = number // inputs.stages
    if chunks is not None:
        require(share % chunks == 0, "block-by-chunks", share=share, chunks=chunks)
        share //= chunks
    if inputs.embedding and stage == 0 and chunk == 0:
        share -= 1
        require(share >= 0, "nothing-left-first")
    if inputs.loss and stage == inputs.stages - 1 and chunk == (chunks or 1) - 1:
        share -= 1
        require(share >= 0, "nothing-left-last")
    return share


def _uneven(inputs: MegatronInputs, stage: int) -> int:
    if stage == inputs.stages - 1 and inputs.last is not None:
        return inputs.last
    if stage == 0 and inputs.first is not None:
        return inputs.first
    number = inputs.layers - (inputs.first or 0) - (inputs.last or 0)
    return number // (inputs.stages - (inputs.first is not None) - (inputs.last is not None))


def _looked_up(inputs: MegatronInputs, settled: Settled, stage: int, chunk: int) -> int:
    share = inputs.layers // inputs.stages
    if inputs.schedule == "dualpipev":
        return _dualpipev(inputs, stage, chunk)
    if settled.chunks is not None:
        return chunk * (inputs.layers // settled.chunks) + stage * (share // settled.chunks)
    return stage * share


def _dualpipev(inputs: MegatronInputs, stage: int, chunk: int) -> int:
    half = inputs.layers // inputs.stages // 2
    return inputs.layers - (stage + 1) * half if chunk else stage * half


def _number(inputs: MegatronInputs, settled: Settled, stage: int, chunk: int) -> int:
    if inputs.schedule == "dualpipev":
        return _dualpipev(inputs, stage, chunk)
    if inputs.stages == 1:
        return 0
    chunks = settled.chunks
    if inputs.first is not None or inputs.last is not None:
        return _number_uneven(inputs, chunks, stage, chunk)
    layers = inputs.layers + inputs.embedding + inputs.loss
    share = layers // inputs.stages
    offset = stage * share if chunks is None else chunk * (layers // chunks) + stage * (share // chunks)
    return offset - (inputs.embedding and not (stage == 0 and chunk == 0))


def _number_uneven(inputs: MegatronInputs, chunks: int | None, stage: int, chunk: int) -> int:
    first, last = inputs.first or 0, inputs.last or 0
    middle_stages = inputs.stages - (inputs.first is not None) - (inputs.last is not None)
    middle = inputs.layers - first - last
    if chunks is not None:
        of_middle = middle // chunks
        total = first // chunks + of_middle + last // chunks
        if stage == 0:
            return chunk * total
        return chunk * total + first // chunks + (stage - 1) * (of_middle // middle_stages)
    if stage == 0:
        return 0
    share = middle // middle_stages if middle_stages > 0 else 0
    return (stage - (inputs.first is not None)) * share + first


def has_experts(inputs: MegatronInputs, number: int) -> bool:
    """Whether the layer that is looked up by this number has experts.

    ``_transformer_block_build_layers`` of MindSpeed-LLM: only where the first layers are dense it looks at the frequency.
    """
    if not inputs.experts:
        return False
    if inputs.dense and inputs.frequency:
        return number >= inputs.dense and number % inputs.frequency == 0
    return True


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
