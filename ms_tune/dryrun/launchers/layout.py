"""Which layers a stage of a Megatron program builds, by the program's arguments: dense or experts, and what is recomputed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from ms_tune.dryrun.launchers.stages import parallel_of
from ms_tune.errors import UsageError
from ms_tune.frameworks.data import load
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ms_tune.dryrun.launchers.words import Words

MOST_LAYERS = 10_000  # a slip of the keyboard must not fill the memory
_FULL = ", full recompute"  # as ms_tune.layers.stage names it


@dataclass(frozen=True, slots=True)
class Layout:
    """How a job's layers lie.

    Attributes:
        stages: Pipeline stages.
        chunks: Chunks of a stage: 1 without virtual pipeline.
        sizes: Layers of a chunk of each stage, those included that do nothing.
        noop: The layers that do nothing, counted from 0.
    """

    stages: int
    chunks: int
    sizes: tuple[int, ...]
    noop: frozenset[int]

    def first(self, stage: int, chunk: int) -> int:
        """The number of the first layer of a stage's chunk, counted from 0."""
        before = [0, *accumulate(self.sizes)]
        return chunk * before[-1] + before[stage]

    def numbers(self, stage: int, chunk: int) -> range:
        """The layers of a stage's chunk."""
        first = self.first(stage, chunk)
        return range(first, first + self.sizes[stage])

    def layers(self, stage: int) -> int:
        """The layers of a stage that do something."""
        every = (number for chunk in range(self.chunks) for number in self.numbers(stage, chunk))
        return sum(number not in self.noop for number in every)


def layout_of(words: Words) -> Layout:
    """How the layers lie.

    Raises:
        UsageError: The arguments do not say it in a way that is followed; the text names the option.
    """
    names = load("launchers")["layers"]
    for option in names["unfollowed"]:
        if option in words:
            raise UsageError(msg("launch.layers.unfollowed", option=option))
    count = _needed(words, names["count"])
    parallel = parallel_of(words.arguments())
    stages = parallel.pipeline if parallel is not None else 1
    given = words.get(names["list"])
    if given:
        sizes = tuple(int(one) if one.strip().isdecimal() else 0 for one in " ".join(given).split(","))
        if len(sizes) != stages or sum(sizes) != count or not all(sizes) or names["of_chunk"] in words:
            raise UsageError(msg("launch.layers.unfollowed", option=names["list"]))
        return Layout(stages, 1, sizes, _noop(words, names["noop"], count))
    chunks, rest = _chunks(words, names, count, stages)
    if rest or count % (stages * chunks):
        raise UsageError(msg("launch.layers.uneven", count=count, stages=stages, chunks=chunks))
    return Layout(stages, chunks, (count // (stages * chunks),) * stages, _noop(words, names["noop"], count))


def _needed(words: Words, option: str) -> int:
    number = words.number(option)
    if number is None or number > MOST_LAYERS:
        raise UsageError(msg("launch.layers.unfollowed", option=option))
    return number


def _chunks(words: Words, names: Mapping[str, str], count: int, stages: int) -> tuple[int, int]:
    if names["of_chunk"] in words:
        return divmod(count, stages * _needed(words, names["of_chunk"]))
    return (_needed(words, names["chunks"]), 0) if names["chunks"] in words else (1, 0)


def _noop(words: Words, option: str, count: int) -> frozenset[int]:
    given = words.get(option)
    if not given:
        return frozenset()
    parts = [part.strip() for part in " ".join(given).split(",")]
    if not all(part.isdecimal() and int(part) < count for part in parts):
        raise UsageError(msg("launch.layers.unfollowed", option=option))
    return frozenset(map(int, parts))


def kinds_of(words: Words, layout: Layout, stage: int) -> Mapping[str, int]:
    """How many layers of each kind a stage has: layers of one kind need the same memory.

    Chunks are kinds of their own, since they have different numbers of micro-batches in flight; layers that are
    recomputed together are one.

    Raises:
        UsageError: The arguments do not say it in a way that is followed; the text names the option.
    """
    found: Counter[str] = Counter()
    for chunk in range(layout.chunks):
        before = f"chunk {chunk}, " if layout.chunks > 1 else ""
        found.update(before + kind for kind in _of_chunk(words, layout, stage, chunk))
    return dict(found)


def _of_chunk(words: Words, layout: Layout, stage: int, chunk: int) -> Iterator[str]:
    names = load("launchers")["layers"]
    numbers = layout.numbers(stage, chunk)
    plain = ["" if number in layout.noop else _mlp(words, names, number) for number in numbers]
    recomputed = " ".join(words.get(names["granularity"]) or ()) == "full"
    method = " ".join(words.get(names["method"]) or ()) if recomputed else ""
    number = words.number(names["number"]) or 1
    if method == "uniform":
        for at in range(0, len(plain), number):
            group = [kind for kind in plain[at : at + number] if kind]
            if group:
                yield " + ".join(group) + _FULL
        return
    if recomputed and method != "block":
        raise UsageError(msg("launch.layers.unfollowed", option=names["method"]))
    scale, shift = (layout.chunks, chunk) if names["by_rank"] in words else (1, 0)
    for at, kind in enumerate(plain):
        if kind:
            yield kind + (_FULL if recomputed and at * scale + shift < number else "")


def _mlp(words: Words, names: Mapping[str, str], number: int) -> str:
    """What a layer has behind its attention (``_transformer_block_build_layers``)."""
    if names["experts"] not in words:
        return "dense"
    if names["dense"] in words and names["frequency"] not in words:
        # Left out it is 1 in MindSpeed-LLM 2.2 and later, and nothing in those before, where all layers have experts then.
        raise UsageError(msg("launch.layers.unfollowed", option=names["frequency"]))
    dense, frequency = (_whole(words.get(names[name]), names[name]) for name in ("dense", "frequency"))
    if not dense or not frequency:
        return "experts"
    return "experts" if number >= dense and number % frequency == 0 else "dense"


def _whole(given: Sequence[str] | None, option: str) -> int:
    text = " ".join(given or ("0",))
    if not text.removeprefix("-").isdecimal():
        raise UsageError(msg("launch.layers.unfollowed", option=option))
    return int(text)
