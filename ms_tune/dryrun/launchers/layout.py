"""Which layers a stage of a Megatron program builds, by the program's arguments: dense or experts, and what is recomputed.

The rules are those of :mod:`ms_tune.dialects.megatron`; here they are asked about words whose parser is not known.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.dialects.layer_plan import FrameworkStop
from ms_tune.dialects.megatron.inputs import MOST_LAYERS, MegatronInputs
from ms_tune.dialects.megatron.placement import has_experts, place
from ms_tune.dialects.megatron.recompute import check_ends, in_full
from ms_tune.dialects.megatron.refusals import validated
from ms_tune.dialects.stage import StageLayerKind
from ms_tune.dryrun.launchers.stages import parallel_of
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.errors import UsageError
from ms_tune.facts.megatron import releases_on
from ms_tune.facts.query import load
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ms_tune.dialects.megatron.inputs import Settled
    from ms_tune.dialects.megatron.placement import StageChunk
    from ms_tune.dryrun.launchers.words import OptionWords

# The release that refuses least; what another one refuses besides, its run tells.
_RELEASE = releases_on("core_v0.12.1")[0]


@dataclass(frozen=True, slots=True)
class ProgramLayout:
    """How a job's layers lie."""

    inputs: MegatronInputs  # what the arguments say
    settled: Settled  # what the frameworks make of them
    cells: tuple[StageChunk, ...]  # the layers of each chunk of each stage, those included that do nothing

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return self.inputs.stages

    @property
    def chunks(self) -> int:
        """Chunks of a stage: 1 without virtual pipeline."""
        return self.settled.chunks or 1

    @property
    def longest(self) -> int:
        """Layers of the longest chunk."""
        return max(cell.count for cell in self.cells)

    def of_stage(self, stage: int) -> tuple[StageChunk, ...]:
        """The chunks of a stage, in their order."""
        return tuple(cell for cell in self.cells if cell.stage == stage)

    def idle(self, cell: StageChunk) -> int:
        """How many layers of a chunk do nothing."""
        return sum(cell.looked_up + index in self.settled.noop for index in range(cell.count))

    def layers(self, stage: int) -> int:
        """The layers of a stage that do something."""
        return sum(cell.count - self.idle(cell) for cell in self.of_stage(stage))


def layout_of(words: OptionWords) -> ProgramLayout:
    """How the layers lie.

    Raises:
        UsageError: The arguments do not say it in a way that is followed, or the frameworks refuse them; the text tells.
    """
    inputs = _inputs(words)
    try:
        settled = validated(inputs)
        return ProgramLayout(inputs, settled, place(inputs, settled))
    except FrameworkStop as stop:
        raise _refused(stop) from stop


def _refused(stop: FrameworkStop) -> UsageError:
    return UsageError(msg("launch.layers.refused", error=f"{stop.exception}: {stop.text}"))


def _inputs(words: OptionWords) -> MegatronInputs:
    names = load("launchers")["layers"]
    for option in names["unfollowed"]:
        if option in words:
            raise UsageError(msg("launch.layers.unfollowed", option=option))
    count = _count(words, names["count"])
    parallel = parallel_of(words.arguments())
    stages = parallel.pipeline if parallel is not None else 1
    chunks, of_chunk = (_count(words, names[one]) if names[one] in words else None for one in ("chunks", "of_chunk"))
    if stages * (chunks or 1) > count:
        raise UsageError(msg("launch.layers.uneven", count=count, stages=stages, chunks=chunks or 1))
    if names["experts"] in words and names["dense"] in words and names["frequency"] not in words:
        # Left out it is 1 in MindSpeed-LLM 2.2 and later, and nothing in those before, where all layers have experts then.
        raise UsageError(msg("launch.layers.unfollowed", option=names["frequency"]))
    experts = names["experts"] in words
    return MegatronInputs(
        release=_RELEASE,
        layers=count,
        stages=stages,
        chunks=chunks,
        layers_of_chunk=of_chunk,
        layer_list=_text(words, names["list"]),
        noop=_text(words, names["noop"]),
        experts=1 if experts else None,
        dense=_whole(words.get(names["dense"]), names["dense"]) if experts else None,
        frequency=_whole(words.get(names["frequency"]), names["frequency"]) if experts else 1,
        granularity=_text(words, names["granularity"]),
        method=_text(words, names["method"]),
        number=words.number(names["number"]),
        by_rank=names["by_rank"] in words,
    )


def _count(words: OptionWords, option: str) -> int:
    number = words.number(option)
    if number is None or number > MOST_LAYERS:
        raise UsageError(msg("launch.layers.unfollowed", option=option))
    return number


def _text(words: OptionWords, option: str) -> str | None:
    given = words.get(option)
    return " ".join(given) if given else None


def kinds_of(layout: ProgramLayout, stage: int) -> Mapping[StageLayerKind, int]:
    """How many layers of each kind a stage has: layers of one kind need the same memory.

    Chunks are kinds of their own, since they have different numbers of micro-batches in flight; layers that are
    recomputed together are one.

    Raises:
        UsageError: The frameworks refuse what is to be recomputed.
    """
    return dict(Counter(kind for cell in layout.of_stage(stage) for kind in _of_cell(layout, cell)))


def _of_cell(layout: ProgramLayout, cell: StageChunk) -> Iterator[StageLayerKind]:
    chunk = cell.chunk if layout.chunks > 1 else None
    try:
        check_ends(layout.inputs, layout.settled, cell)
        groups = in_full(layout.inputs, layout.settled, cell)
    except FrameworkStop as stop:
        raise _refused(stop) from stop
    together: dict[int, list[LayerKind]] = {}
    for index, group in enumerate(groups):
        number = cell.looked_up + index
        if number in layout.settled.noop:
            continue
        make = LayerKind.EXPERTS if has_experts(layout.inputs, number) else LayerKind.DENSE
        if group is None:
            yield StageLayerKind(make, chunk=chunk)
        else:
            together.setdefault(group, []).append(make)
    for first, *others in together.values():
        yield StageLayerKind(first, RecomputeMode.FULL, chunk=chunk, together=tuple(others))


def _whole(given: Sequence[str] | None, option: str) -> int:
    text = " ".join(given or ("0",))
    if not text.removeprefix("-").isdecimal() or len(text) > len(str(MOST_LAYERS)):
        raise UsageError(msg("launch.layers.unfollowed", option=option))
    return int(text)
