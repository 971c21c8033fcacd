"""A stage of a Megatron program with fewer layers: by which arguments, and how the whole stage follows from such runs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.dryrun.extrapolate import weights, worst
from ms_tune.dryrun.launchers.layout import ProgramLayout, kinds_of, layout_of
from ms_tune.dryrun.launchers.words import OptionWords
from ms_tune.errors import UsageError
from ms_tune.facts.query import load
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from fractions import Fraction

    from ms_tune.dialects.stage import StageLayerKind
    from ms_tune.text import Message

AUTO = "auto"
_FEWEST = 2  # one layer is the first and the last at once
_MOST_RUNS = 8
_MOST_TRIED = 4000  # sets of arguments


@dataclass(frozen=True, slots=True)
class Small:
    """A run of a stage."""

    layers: int  # layers of the stage that do something
    kinds: Mapping[StageLayerKind, int]  # how many of each kind
    arguments: tuple[str, ...]  # what the program is given


@dataclass(frozen=True, slots=True)
class StageSizes:
    """What is run of a stage."""

    layers: int | None  # layers of the whole stage; None if its arguments are not followed
    runs: tuple[Small, ...]  # what is run, that with fewest layers first; one run where nothing is derived
    factors: tuple[Fraction, ...] = ()  # their weights in the whole stage; empty where nothing is derived
    reason: Message | None = None  # why the whole stage is not derived, where it was asked for


def sizes_of(arguments: Sequence[str], stage: int, wanted: int | str | None) -> StageSizes:
    """What is run of a stage.

    Args:
        arguments: The program's own.
        stage: The stage.
        wanted: Layers to begin with; ``auto`` for the fewest from which the whole can be derived; None for all.

    Raises:
        UsageError: So many layers are more than the stage has.
    """
    words = OptionWords(arguments)
    try:
        layout = layout_of(words)
        full = Small(layout.layers(stage), kinds_of(layout, stage), tuple(arguments))
    except UsageError as error:
        whole = Small(0, {}, tuple(arguments))
        return StageSizes(None, (whole,), reason=None if wanted is None else error.message)
    if wanted is None:
        return StageSizes(full.layers, (full,))
    least = _FEWEST if wanted == AUTO else int(wanted)
    if least > full.layers and wanted != AUTO:
        raise UsageError(msg("stages.layers.many", layers=least, full=full.layers), msg("stages.layers.hint"))
    found = _derived(words, layout, stage, full, least)
    if wanted == AUTO and (found is None or sum(run.layers for run in found.runs) >= full.layers):
        return StageSizes(full.layers, (full,))
    if found is None:
        reason = None if least == full.layers else msg("launch.layers.whole")
        return StageSizes(full.layers, (full,), reason=reason)
    return found


def _derived(words: OptionWords, layout: ProgramLayout, stage: int, full: Small, least: int) -> StageSizes | None:
    """Runs with so many layers and more from which the whole stage follows; None if only the whole tells."""
    chosen: list[Small] = []
    for one in _smaller(words, layout, stage, full):
        if one.layers < least or any(one.kinds == other.kinds for other in chosen):
            continue
        chosen.append(one)
        solved = weights(full.kinds, [run.kinds for run in chosen])
        if solved is not None:
            used = [(run, factor) for run, factor in zip(chosen, solved, strict=True) if factor]
            return StageSizes(full.layers, tuple(run for run, _ in used), tuple(factor for _, factor in used))
        if len(chosen) == _MOST_RUNS:
            break
    return None


def _smaller(words: OptionWords, layout: ProgramLayout, stage: int, full: Small) -> Iterator[Small]:
    """The stage with fewer layers of each of its kinds, the smallest first.

    Each kind is there at least once: without a layer that is not recomputed, for one, the peak is at another moment, when a
    recomputed one is made anew.
    """
    tried = 0
    for size in range(1, layout.longest):
        found: list[Small] = []
        for changed in _changed(words, layout, stage, size):
            tried += 1
            if tried > _MOST_TRIED:
                return
            with contextlib.suppress(UsageError):
                made = layout_of(changed)
                kinds = kinds_of(made, stage)
                if set(kinds) == set(full.kinds) and all(count <= full.kinds[kind] for kind, count in kinds.items()):
                    found.append(Small(made.layers(stage), kinds, changed.arguments()))
        yield from sorted(found, key=lambda one: one.layers)


def _changed(words: OptionWords, layout: ProgramLayout, stage: int, size: int) -> Iterator[OptionWords]:
    """The arguments with so many layers in a chunk, with each number of dense and of recomputed layers that there may be."""
    names = load("launchers")["layers"]
    count = size * layout.stages * layout.chunks
    sized = {
        names["count"]: str(count),
        names["of_chunk"]: str(size),
        names["list"]: ",".join([str(size)] * layout.stages),
        names["noop"]: ",".join(map(str, sorted(_noop(layout, size, stage)))),
    }
    dense, numbers = [words.number(names["dense"])], [words.number(names["number"])]
    if names["experts"] in words and dense[0]:
        dense = [*range(count + 1)]
    if words.get(names["method"]) == ["block"]:
        numbers = [*range(1, size * (layout.chunks if names["by_rank"] in words else 1) + 1)]
    for first in dense:
        for number in numbers:
            yield _with(words, {**sized, names["dense"]: first, names["number"]: number})


def _with(words: OptionWords, values: Mapping[str, object]) -> OptionWords:
    """The arguments with these values of the options that are among them; an option without one is taken out."""
    made = OptionWords(words.arguments())
    for option, value in values.items():
        if option in made and value == "":
            made.drop([option])
        elif option in made and value is not None:
            made.put(option, str(value))
    return made


def _noop(layout: ProgramLayout, size: int, stage: int) -> Iterator[int]:
    """As many layers that do nothing in each chunk of the stage, at its end; each chunk has so many layers."""
    for cell in layout.of_stage(stage):
        first = (cell.chunk * layout.stages + stage) * size
        yield from list(range(first, first + size))[::-1][: layout.idle(cell)]


def worst_of(arguments: Sequence[str], stages: int) -> tuple[int, ...]:
    """The stages that no other outdoes; all where the arguments are not followed."""
    words = OptionWords(arguments)
    try:
        layout = layout_of(words)
        return worst([kinds_of(layout, stage) for stage in range(stages)])
    except (UsageError, IndexError):
        return tuple(range(stages))
