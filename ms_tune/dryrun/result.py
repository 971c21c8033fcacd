"""Define the results of simulated jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from ms_tune.dryrun.cann_sim.environment import Backend
from ms_tune.dryrun.request import OptionSetting, PreparedRun, Setting
from ms_tune.enums import MemoryCategory
from ms_tune.errors import MsTuneError
from ms_tune.readers.scopes import mask_layer_number
from ms_tune.text import Message, msg
from ms_tune.units import MIB
from ms_tune.verdict.outcome import Need, Verdict, no_verdict

if TYPE_CHECKING:
    from ms_tune.footprint.phases import Phase
    from ms_tune.footprint.result import RankReport

_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True, slots=True)
class PhasePeak:
    """The moment of most memory within one phase of the training step: its bytes and its tick."""

    bytes: int
    tick: int


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The trace of one simulated process, read."""

    folder: Path  # its folder in the run folder
    trace: Path  # the tracker's `memory_block.csv` in it
    report: RankReport  # all analysed data
    # The most memory in each phase of the training step; under None before the first one, or if the phases are unknown.
    phase_peaks: Mapping[Phase | None, PhasePeak]
    seconds: float  # run time of the process
    warnings: tuple[Message, ...]  # reasons why the figures are less certain

    @property
    def peak_bytes(self) -> int:
        """Return the largest number of bytes in use."""
        return self.report.curve.peak_bytes

    @property
    def footprint_bytes(self) -> int:
        """Return the largest address range in use: the peak with fragmentation."""
        return self.report.curve.footprint_bytes

    @property
    def contents(self) -> Mapping[MemoryCategory, int]:
        """Return the composition of the peak; the bytes add up to it."""
        return self.report.peak.contents

    def name_of(self, row: int) -> str | None:
        """Return the name of the parameter in a row, with ``*`` instead of its layer number; None if it is not a parameter."""
        name = self.report.contents.names.get(row)
        return mask_layer_number(name) if name is not None else None


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """A full stage, derived from runs with fewer layers. It was not run."""

    layers: int  # layers of the stage by the config
    from_layers: tuple[int, ...]  # layers of the runs that it is derived from
    peak_bytes: int
    need: Need  # the peak with fragmentation, or a range for it
    contents: Mapping[MemoryCategory, int]  # composition of the peak; empty if unknown
    layer_bytes: int  # bytes that one more layer adds, of the kind that the runs differ by
    # The part of them that is activations, of all micro-batches in flight; 0 for a layer that keeps only its input.
    layer_activations: int
    phases: Mapping[Phase, int]  # the peak in each phase of the training step; empty if the phases are unknown
    weights: tuple[Fraction, ...]  # of the runs, whose sum the stage is
    replayed: bool  # whether its requests, repeated from those of the runs, could be replayed
    traces: tuple[Path, ...] = field(compare=False)  # of the runs


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JudgedTrace:
    """The trace of a stage, or of a rank of a command, with its verdict."""

    reading: Reading  # its trace, read
    extrapolation: Extrapolation | None = None  # the whole stage, if the run has fewer layers and it was requested
    full_layers: int | None = None  # layers of the stage by the config, or the program's arguments; None if unknown
    verdict: Verdict  # whether it fits, and why

    @property
    def contents(self) -> Mapping[MemoryCategory, int]:
        """Return the composition of the peak that the verdict is about; empty if unknown."""
        return self.extrapolation.contents if self.extrapolation else self.reading.contents

    @property
    def judged_bytes(self) -> int:
        """Return the peak that the verdict is about: that of the whole stage if it is known."""
        return self.extrapolation.peak_bytes if self.extrapolation else self.reading.peak_bytes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StageResult(JudgedTrace):
    """One simulated stage with its verdict."""

    run: PreparedRun  # the run
    # Activations at the peak of one layer without recomputation; recomputing it would free them except its input. 0 if every
    # layer is already recomputed, None if unknown.
    layer_activations: int | None

    @property
    def layers(self) -> int:
        """Return the number of layers that the verdict is about."""
        return self.extrapolation.layers if self.extrapolation else self.run.layers

    @property
    def phases(self) -> Mapping[Phase, int]:
        """Return the peak in each phase of the training step, for the layers that the verdict is about."""
        if self.extrapolation is not None:
            return self.extrapolation.phases
        return {phase: peak.bytes for phase, peak in self.reading.phase_peaks.items() if phase is not None}

    @property
    def theory(self) -> tuple[TheoryCheck, ...]:
        """Return the memory used from the first step to the last, compared with theory; empty if theory has no result."""
        return compare_theory(self.run.theory, self.reading.contents)


@dataclass(frozen=True, slots=True, eq=False)
class DryrunResult:
    """A finished job with its verdicts."""

    folder: Path  # where it is stored
    backend: Backend  # the libraries that the Ascend back end was loaded with
    level: int  # `MS_SIMULATION_LEVEL`
    mindspore: str  # MindSpore's version
    mindformers: str | None  # MindFormers' version, if it built the model
    settings: tuple[Setting, ...]  # config values that the user replaced
    runs: tuple[PreparedRun, ...]  # the runs, by stage and rank
    stages: tuple[StageResult, ...]  # their results, in the same order; empty at level 0, which only compiles
    skipped: tuple[int, ...]  # stages that need no more memory than a simulated one
    seconds: float  # time of all processes together, from the first start to the last end
    not_included: tuple[Message, ...]  # memory that the figures do not include
    warnings: tuple[Message, ...]  # reasons why the figures are less certain

    @property
    def worst(self) -> StageResult:
        """Return the stage with the worst verdict; among equals, the one that needs most, then the first."""
        return max(self.stages, key=lambda stage: (stage.verdict.severity, stage.judged_bytes))

    @property
    def verdict(self) -> Verdict:
        """Return the verdict about the worst stage: whether all stages fit; none at level 0."""
        return self.worst.verdict if self.stages else no_verdict(msg("verdict.none.compiled"))

    @property
    def imbalance(self) -> float:
        """Return how much less memory the smallest stage needs than the largest, as a share of the largest: 0 if equal."""
        sizes = [stage.judged_bytes for stage in self.stages]
        return 1 - min(sizes) / max(sizes) if max(sizes) else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class VariantResult(Generic[_ResultT]):
    """One variant of a job, or of a command."""

    settings: tuple[Setting, ...] | tuple[OptionSetting, ...]  # its replaced config values, or options of the script
    result: _ResultT | None  # its result; None if it failed
    error: MsTuneError | None  # why it failed


@dataclass(frozen=True, slots=True, eq=False)
class SweepResult(Generic[_ResultT]):
    """The results of several variants of a job or a command."""

    folder: Path  # where all of them are stored
    variants: tuple[VariantResult[_ResultT], ...]  # in the user's order


_SHARE = 0.001
_PADDING = 1 * MIB  # the allocator rounds every tensor up


@dataclass(frozen=True, slots=True)
class TheoryCheck:
    """The measured and the theoretical size of one category of a rank's memory."""

    content: str  # its name in `ms_tune.enums.MemoryCategory`
    measured: int  # bytes at the peak
    expected: int  # bytes by theory

    @property
    def difference(self) -> float | None:
        """Return the relative difference from theory; None if theory expects nothing."""
        return (self.measured - self.expected) / self.expected if self.expected else None

    @property
    def agrees(self) -> bool:
        """Return whether the difference is within the allocator's padding."""
        return abs(self.measured - self.expected) <= max(_SHARE * self.expected, _PADDING)


def compare_theory(theory: Mapping[str, int], contents: Mapping[MemoryCategory, int]) -> tuple[TheoryCheck, ...]:
    """Return measured and theoretical sizes by category; empty if theory has no result."""
    measured = {content.value: size for content, size in contents.items()}
    return tuple(TheoryCheck(content, measured.get(content, 0), expected) for content, expected in theory.items())


def unlike_theory(pairs: Iterable[TheoryCheck]) -> Iterator[Message]:
    """Yield the categories whose measured size differs from theory, which means that one of the two is wrong."""
    for pair in pairs:
        if not pair.agrees:
            yield msg(
                "reference.unlike-theory",
                content=msg(f"memory.content.{pair.content}"),
                measured=pair.measured,
                theory=pair.expected,
            )
