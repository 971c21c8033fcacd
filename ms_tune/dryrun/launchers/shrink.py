"""Determine the layers of a Megatron program's stages from its arguments, and the arguments that give a stage fewer.

Uses the rules of :mod:`ms_tune.dialects.megatron`, applied to arguments whose parser is unknown.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ms_tune.dialects import FrameworkStop
from ms_tune.dialects.megatron.placement import (
    MOST_LAYERS,
    FinalArguments,
    MegatronInputs,
    StageChunk,
    has_experts,
    place_layers,
)
from ms_tune.dialects.megatron.recompute import check_ends, in_full
from ms_tune.dialects.megatron.refusals import validated
from ms_tune.dialects.stage import StageLayerKind
from ms_tune.dryrun.extrapolate import solve_weights, undominated_stages
from ms_tune.dryrun.launchers.arguments import OptionWords, parallel_of
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.errors import UsageError
from ms_tune.facts.megatron import releases_on
from ms_tune.facts.query import load
from ms_tune.text import Message, msg

# The release with the fewest checks; errors of others show in the run.
_RELEASE = releases_on("core_v0.12.1")[0]


@dataclass(frozen=True, slots=True)
class _ProgramLayout:
    inputs: MegatronInputs  # read from the arguments
    arguments: FinalArguments  # as resolved by the frameworks
    cells: tuple[StageChunk, ...]  # the layers of each chunk of each stage, including no-op layers

    @property
    def chunks(self) -> int:
        return self.arguments.chunks or 1  # per stage

    def of_stage(self, stage: int) -> tuple[StageChunk, ...]:
        return tuple(cell for cell in self.cells if cell.stage == stage)

    def idle(self, cell: StageChunk) -> int:
        # Return the number of no-op layers in a chunk.
        return sum(cell.looked_up + index in self.arguments.noop for index in range(cell.count))

    def layers(self, stage: int) -> int:
        # Return the number of a stage's layers without no-op layers.
        return sum(cell.count - self.idle(cell) for cell in self.of_stage(stage))


def layout_of(words: OptionWords) -> _ProgramLayout:
    """Return the placement of the layers."""
    inputs = _read_inputs(words)
    try:
        settled = validated(inputs)
        return _ProgramLayout(inputs, settled, place_layers(inputs, settled))
    except FrameworkStop as stop:
        raise _refusal_error(stop) from stop


def _refusal_error(stop: FrameworkStop) -> UsageError:
    return UsageError(msg("launch.layers.refused", error=f"{stop.exception}: {stop.text}"))


def _read_inputs(words: OptionWords) -> MegatronInputs:
    names = load("launchers")["layers"]
    for option in names["unfollowed"]:
        if option in words:
            raise UsageError(msg("launch.layers.unfollowed", option=option))
    count = _read_count(words, names["count"])
    parallel = parallel_of(words.arguments())
    stages = parallel.pipeline if parallel is not None else 1
    chunks, of_chunk = (
        _read_count(words, names[one]) if names[one] in words else None for one in ("chunks", "of_chunk")
    )
    if stages * (chunks or 1) > count:
        raise UsageError(msg("launch.layers.uneven", count=count, stages=stages, chunks=chunks or 1))
    if names["experts"] in words and names["dense"] in words and names["frequency"] not in words:
        # The default is 1 in MindSpeed-LLM 2.2 and later, and none in earlier ones, where all layers then have experts.
        raise UsageError(msg("launch.layers.unfollowed", option=names["frequency"]))
    experts = names["experts"] in words
    return MegatronInputs(
        release=_RELEASE,
        layers=count,
        stages=stages,
        chunks=chunks,
        layers_of_chunk=of_chunk,
        layer_list=_read_text(words, names["list"]),
        noop=_read_text(words, names["noop"]),
        experts=1 if experts else None,
        dense=_read_whole(words.get(names["dense"]), names["dense"]) if experts else None,
        frequency=_read_whole(words.get(names["frequency"]), names["frequency"]) if experts else 1,
        granularity=_read_text(words, names["granularity"]),
        method=_read_text(words, names["method"]),
        number=words.number(names["number"]),
        by_rank=names["by_rank"] in words,
    )


def _read_count(words: OptionWords, option: str) -> int:
    number = words.number(option)
    if number is None or number > MOST_LAYERS:
        raise UsageError(msg("launch.layers.unfollowed", option=option))
    return number


def _read_text(words: OptionWords, option: str) -> str | None:
    given = words.get(option)
    return " ".join(given) if given else None


def kinds_of(layout: _ProgramLayout, stage: int) -> Mapping[StageLayerKind, int]:
    """Return the number of layers of each kind in a stage: layers of one kind need the same memory.

    Chunks are separate kinds, since they have different numbers of micro-batches in flight; layers that are recomputed together
    count as one.
    """
    return dict(Counter(kind for cell in layout.of_stage(stage) for kind in _of_cell(layout, cell)))


def _of_cell(layout: _ProgramLayout, cell: StageChunk) -> Iterator[StageLayerKind]:
    chunk = cell.chunk if layout.chunks > 1 else None
    try:
        check_ends(layout.inputs, layout.arguments, cell)
        groups = in_full(layout.inputs, layout.arguments, cell)
    except FrameworkStop as stop:
        raise _refusal_error(stop) from stop
    together: dict[int, list[LayerKind]] = {}
    for index, group in enumerate(groups):
        number = cell.looked_up + index
        if number in layout.arguments.noop:
            continue
        make = LayerKind.EXPERTS if has_experts(layout.inputs, number) else LayerKind.DENSE
        if group is None:
            yield StageLayerKind(make, chunk=chunk)
        else:
            together.setdefault(group, []).append(make)
    for first, *others in together.values():
        yield StageLayerKind(first, RecomputeMode.FULL, chunk=chunk, together=tuple(others))


def _read_whole(given: Sequence[str] | None, option: str) -> int:
    text = " ".join(given or ("0",))
    if not text.removeprefix("-").isdecimal() or len(text) > len(str(MOST_LAYERS)):
        raise UsageError(msg("launch.layers.unfollowed", option=option))
    return int(text)


AUTO = "auto"
_FEWEST = 2  # a single layer is both the first and the last
_MOST_RUNS = 8
_MOST_TRIED = 4000  # sets of arguments tried


@dataclass(frozen=True, slots=True)
class SmallStage:
    """One run of a stage with some of its layers."""

    layers: int  # layers of the stage without no-op layers
    kinds: Mapping[StageLayerKind, int]  # their number by kind
    arguments: tuple[str, ...]  # arguments of the program


@dataclass(frozen=True, slots=True)
class StageSizes:
    """The runs of a stage, and how the whole stage is derived from them."""

    layers: int | None  # layers of the whole stage; None if its arguments are not supported
    runs: tuple[SmallStage, ...]  # the runs, smallest first; a single run if nothing is derived
    factors: tuple[Fraction, ...] = ()  # their weights in the whole stage; empty if nothing is derived
    reason: Message | None = None  # why the whole stage is not derived, if it was requested


def sizes_of(arguments: Sequence[str], stage: int, wanted: int | str | None) -> StageSizes:
    """Return the runs of a stage, each with at least ``wanted`` layers: ``auto`` for the fewest that suffice, None for all."""
    words = OptionWords(arguments)
    try:
        layout = layout_of(words)
        full = SmallStage(layout.layers(stage), kinds_of(layout, stage), tuple(arguments))
    except UsageError as error:
        whole = SmallStage(0, {}, tuple(arguments))
        return StageSizes(None, (whole,), reason=None if wanted is None else error.message)
    if wanted is None:
        return StageSizes(full.layers, (full,))
    least = _FEWEST if wanted == AUTO else int(wanted)
    if least > full.layers and wanted != AUTO:
        raise UsageError(msg("stages.layers.many", layers=least, full=full.layers), msg("stages.layers.hint"))
    found = _choose_runs(words, layout, stage, full, least)
    if wanted == AUTO and (found is None or sum(run.layers for run in found.runs) >= full.layers):
        return StageSizes(full.layers, (full,))
    if found is None:
        reason = None if least == full.layers else msg("launch.layers.whole")
        return StageSizes(full.layers, (full,), reason=reason)
    return found


def _choose_runs(
    words: OptionWords, layout: _ProgramLayout, stage: int, full: SmallStage, least: int
) -> StageSizes | None:
    chosen: list[SmallStage] = []
    for one in _list_smaller(words, layout, stage, full):
        if one.layers < least or any(one.kinds == other.kinds for other in chosen):
            continue
        chosen.append(one)
        solved = solve_weights(full.kinds, [run.kinds for run in chosen])
        if solved is not None:
            used = [(run, factor) for run, factor in zip(chosen, solved, strict=True) if factor]
            return StageSizes(full.layers, tuple(run for run, _ in used), tuple(factor for _, factor in used))
        if len(chosen) == _MOST_RUNS:
            break
    return None


def _list_smaller(words: OptionWords, layout: _ProgramLayout, stage: int, full: SmallStage) -> Iterator[SmallStage]:
    # Yield the stage with fewer layers of each kind, smallest first. Each kind must occur at least once: without a layer that
    # is not recomputed, for example, the peak is at another moment, during recomputation.
    tried = 0
    for size in range(1, max(cell.count for cell in layout.cells)):
        found: list[SmallStage] = []
        for changed in _list_changed(words, layout, stage, size):
            tried += 1
            if tried > _MOST_TRIED:
                return
            with contextlib.suppress(UsageError):
                made = layout_of(changed)
                kinds = kinds_of(made, stage)
                if set(kinds) == set(full.kinds) and all(count <= full.kinds[kind] for kind, count in kinds.items()):
                    found.append(SmallStage(made.layers(stage), kinds, changed.arguments()))
        yield from sorted(found, key=lambda one: one.layers)


def _list_changed(words: OptionWords, layout: _ProgramLayout, stage: int, size: int) -> Iterator[OptionWords]:
    names = load("launchers")["layers"]
    stages = layout.inputs.stages
    count = size * stages * layout.chunks
    noop: list[int] = []
    for cell in layout.of_stage(stage):
        end = (cell.chunk * stages + stage + 1) * size
        noop += range(end - min(layout.idle(cell), size), end)
    sized = {
        names["count"]: str(count),
        names["of_chunk"]: str(size),
        names["list"]: ",".join([str(size)] * stages),
        names["noop"]: ",".join(map(str, sorted(noop))),
    }
    dense, numbers = [words.number(names["dense"])], [words.number(names["number"])]
    if names["experts"] in words and dense[0]:
        dense = [*range(count + 1)]
    if words.get(names["method"]) == ["block"]:
        numbers = [*range(1, size * (layout.chunks if names["by_rank"] in words else 1) + 1)]
    for first in dense:
        for number in numbers:
            yield _with_values(words, {**sized, names["dense"]: first, names["number"]: number})


def _with_values(words: OptionWords, values: Mapping[str, object]) -> OptionWords:
    made = OptionWords(words.arguments())
    for option, value in values.items():
        if option in made and value == "":
            made.drop([option])
        elif option in made and value is not None:
            made.put(option, str(value))
    return made


def worst_of(arguments: Sequence[str], stages: int) -> tuple[int, ...]:
    """Return the stages that may need the most memory; all stages if the arguments are not supported."""
    words = OptionWords(arguments)
    with contextlib.suppress(UsageError, IndexError):
        layout = layout_of(words)
        return undominated_stages([kinds_of(layout, stage) for stage in range(stages)])
    return tuple(range(stages))
