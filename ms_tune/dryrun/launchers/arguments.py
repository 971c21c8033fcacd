"""A program's arguments, as options with the words that follow each: read, set and taken out without knowing their types.

How they split the job, and which of its ranks are simulated then: one of each pipeline stage, as Megatron numbers them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.errors import UsageError
from ms_tune.facts.query import load
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_OPTION = re.compile(r"--?[A-Za-z]")  # and no negative number


@dataclass(frozen=True, slots=True)
class OptionChange:
    """An argument that the program is not given as the script says it."""

    key: str  # the option
    before: str | None  # its words in the script; None where the script has no such option
    after: str | None  # its words now; None where it was taken out


class OptionWords:
    """The arguments of a program, and what was changed in them.

    An option's words are all that stand behind it up to the next option: ``--load my checkpoint`` is one option with two
    words, as a shell makes it of an unquoted path with a blank.

    Attributes:
        parts: Options with their words, in their order; the first part has no option.
        changes: What was changed so far.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self.parts: list[tuple[str, list[str]]] = [("", [])]
        self.changes: list[OptionChange] = []
        for word in arguments:
            if _OPTION.match(word):
                name, equals, value = word.partition("=")
                self.parts.append((name, [value] if equals else []))
            else:
                self.parts[-1][1].append(word)

    def __contains__(self, option: object) -> bool:
        return any(name == option for name, _ in self.parts)

    def get(self, option: str) -> list[str] | None:
        """The words of an option, where it stands last; None if it is absent."""
        found = None
        for name, words in self.parts:
            if name == option:
                found = words
        return found

    def number(self, option: str) -> int | None:
        """The option's only word as a positive number; None if it is none."""
        words = self.get(option)
        if words is None or len(words) != 1 or not words[0].isdecimal():
            return None
        return int(words[0]) or None

    def put(self, option: str, *words: str) -> None:
        """Give an option these words, once."""
        before = self.get(option)
        if before == list(words):
            return
        self.parts = [part for part in self.parts if part[0] != option]
        self.parts.append((option, list(words)))
        self.changes.append(OptionChange(option, _join_words(before), " ".join(words)))

    def drop(self, options: Iterable[str]) -> None:
        """Take options out."""
        for option in options:
            before = self.get(option)
            if before is not None:
                self.parts = [part for part in self.parts if part[0] != option]
                self.changes.append(OptionChange(option, _join_words(before), None))

    def arguments(self) -> tuple[str, ...]:
        """All of them, as a program takes them."""
        return tuple(word for name, words in self.parts for word in ([name] if name else []) + words)


def _join_words(words: Sequence[str] | None) -> str | None:
    return None if words is None else " ".join(words)


@dataclass(frozen=True, slots=True)
class ProgramSplit:
    """How a program's own arguments split its job; 1 for what they leave out."""

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1  # over how many ranks the experts are; these are ranks of the other dimensions
    # Ranks are numbered tensor, context, pipeline, data, and not with the pipeline last.
    pipeline_before_data: bool = False


@dataclass(frozen=True, slots=True)
class SimulatedRank:
    """A rank that is simulated, and its stage; None where stages are not what it was chosen by."""

    rank: int
    stage: int | None


def parallel_of(arguments: Sequence[str]) -> ProgramSplit | None:
    """The split that Megatron's arguments name, the last one of each winning; None if they name no pipeline."""
    names, words = load("launchers")["parallel"], OptionWords(arguments)
    pipeline = words.number(names["pipeline"])
    if pipeline is None:
        return None
    return ProgramSplit(
        tensor=words.number(names["tensor"]) or 1,
        pipeline=pipeline,
        context=words.number(names["context"]) or 1,
        expert=words.number(names["expert"]) or 1,
        pipeline_before_data=names["pipeline_before_data"] in arguments,
    )


def first_rank(stage: int, world: int, parallel: ProgramSplit) -> int:
    """The lowest rank of a stage.

    Megatron's order is tensor, context, expert, data, pipeline, so that a stage's ranks are neighbours; with
    ``--use-tp-pp-dp-mapping`` the data dimension is the last one (Megatron-LM core_v0.12.1,
    ``megatron/core/parallel_state.py``, ``initialize_model_parallel``).
    """
    if parallel.pipeline_before_data:
        return stage * parallel.tensor * parallel.context
    return stage * (world // parallel.pipeline)


def choose_ranks(
    world: int, parallel: ProgramSplit | None, stages: Sequence[int] | None = None, ranks: Sequence[int] = ()
) -> tuple[SimulatedRank, ...]:
    """The ranks to simulate, each once.

    Args:
        world: Ranks of the job.
        parallel: The program's split, if its arguments tell.
        stages: Only these stages; None for all.
        ranks: These ranks and no others, if any.

    Raises:
        UsageError: There is no such stage or rank.
    """
    if ranks:
        beyond = next((rank for rank in ranks if rank >= world), None)
        if beyond is not None:
            raise UsageError(msg("launch.beyond.rank", number=beyond, count=world))
        return tuple(SimulatedRank(rank, None) for rank in dict.fromkeys(ranks))
    if parallel is None or parallel.pipeline > world:
        parallel = ProgramSplit()
    wanted = range(parallel.pipeline) if stages is None else dict.fromkeys(stages)
    beyond = next((stage for stage in wanted if stage >= parallel.pipeline), None)
    if beyond is not None:
        raise UsageError(msg("launch.beyond.stage", number=beyond, count=parallel.pipeline))
    return tuple(SimulatedRank(first_rank(stage, world, parallel), stage) for stage in wanted)
