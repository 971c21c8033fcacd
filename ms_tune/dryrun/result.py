"""What a simulated job found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from ms_tune.text import msg
from ms_tune.units import MIB
from ms_tune.verdict.outcome import Verdict, no_verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from ms_tune.dryrun.cann_sim.environment import Backend
    from ms_tune.dryrun.request import OptionSetting, PreparedRun, Setting
    from ms_tune.enums import MemoryCategory
    from ms_tune.errors import MsTuneError
    from ms_tune.footprint.phases import Phase
    from ms_tune.footprint.result import RankReport
    from ms_tune.text import Message
    from ms_tune.verdict.outcome import Need

_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True, slots=True)
class PhasePeak:
    """The moment of most memory within one phase of the training step: its bytes and its tick."""

    bytes: int
    tick: int


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What one simulated process left behind."""

    folder: Path  # its folder in the run folder
    trace: Path  # the tracker's `memory_block.csv` in it
    report: RankReport  # all that is known about it
    # The most memory in each phase of the training step; under None before the first one, and where nothing tells the
    # phases.
    phase_peaks: Mapping[Phase | None, PhasePeak]
    seconds: float  # time of the process
    warnings: tuple[Message, ...]  # what makes the figures less certain than they look

    @property
    def peak_bytes(self) -> int:
        """The most bytes in use."""
        return self.report.curve.peak_bytes

    @property
    def footprint_bytes(self) -> int:
        """The largest address range in use: the peak with fragments."""
        return self.report.curve.footprint_bytes

    @property
    def contents(self) -> Mapping[MemoryCategory, int]:
        """What the peak is made of; the bytes add up to it."""
        return self.report.peak.contents

    def name_of(self, row: int) -> str | None:
        """The name of the parameter in a row, with ``*`` for the number of its layer; None if it holds none."""
        from ms_tune.footprint.layers import mask_layer_number  # noqa: PLC0415 - it needs numpy

        name = self.report.contents.names.get(row)
        return mask_layer_number(name) if name is not None else None


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """A full stage, derived from runs with fewer layers. It was not run."""

    layers: int  # layers that the config gives the stage
    from_layers: tuple[int, ...]  # layers of the runs that it is derived from
    peak_bytes: int
    need: Need  # the peak with its fragments, or the range in which they are
    contents: Mapping[MemoryCategory, int]  # what the peak is made of; empty if nothing tells
    layer_bytes: int  # what one more layer, of the kind that the runs differ by, adds to it
    # What of it are activations, of all micro-batches in flight; 0 for a layer that keeps only its input.
    layer_activations: int
    phases: Mapping[Phase, int]  # the peak in each phase of the training step; empty where nothing tells the phases


@dataclass(frozen=True, slots=True, eq=False)
class StageResult:
    """One simulated stage, judged."""

    run: PreparedRun  # what was run
    reading: Reading  # what it left behind
    extrapolation: Extrapolation | None  # the full stage, if the run has fewer layers and it was asked for
    full_layers: int | None  # layers that the config gives the stage; None if that is not known
    verdict: Verdict  # whether it fits, and on what grounds
    # Activations that one layer that is not recomputed holds at the peak, which recomputing it would free but for its
    # input; 0 if every layer is recomputed already, None if nothing tells.
    layer_activations: int | None

    @property
    def contents(self) -> Mapping[MemoryCategory, int]:
        """What the peak that the verdict is about is made of; empty if nothing tells."""
        return self.extrapolation.contents if self.extrapolation else self.reading.contents

    @property
    def layers(self) -> int:
        """Layers of what the verdict is about."""
        return self.extrapolation.layers if self.extrapolation else self.run.layers

    @property
    def phases(self) -> Mapping[Phase, int]:
        """The peak in each phase of the training step, of what the verdict is about."""
        if self.extrapolation is not None:
            return self.extrapolation.phases
        return {phase: peak.bytes for phase, peak in self.reading.phase_peaks.items() if phase is not None}

    @property
    def judged_bytes(self) -> int:
        """The peak that the verdict is about: of the full stage where it is known."""
        return self.extrapolation.peak_bytes if self.extrapolation else self.reading.peak_bytes

    @property
    def theory(self) -> tuple[BesideTheory, ...]:
        """What the run holds from its first step to its last, beside theory; empty where theory tells nothing."""
        return beside_theory(self.run.theory, self.reading.contents)


@dataclass(frozen=True, slots=True, eq=False)
class DryrunResult:
    """A finished job, read and judged."""

    folder: Path  # where it is kept
    backend: Backend  # what the Ascend back end was loaded with
    level: int | None  # `MS_SIMULATION_LEVEL`; None on devices
    mindspore: str  # MindSpore's version
    mindformers: str | None  # MindFormers' version, if it built the model
    settings: tuple[Setting, ...]  # what the user had run otherwise than the config says
    runs: tuple[PreparedRun, ...]  # what was run, by stage and rank
    stages: tuple[StageResult, ...]  # what it found, in the same order; empty at level 0, which compiles only
    skipped: tuple[int, ...]  # stages that need no more than one that was simulated
    seconds: float  # time of all processes together, from the first start to the last end
    not_included: tuple[Message, ...]  # what the figures leave out
    warnings: tuple[Message, ...]  # what makes the figures less certain than they look

    @property
    def worst(self) -> StageResult:
        """The stage with the worst verdict that needs most; the first of equals."""
        return max(self.stages, key=lambda stage: (stage.verdict.severity, stage.judged_bytes))

    @property
    def verdict(self) -> Verdict:
        """Whether every stage fits: the verdict about the worst; at level 0 there is none."""
        return self.worst.verdict if self.stages else no_verdict(msg("verdict.none.compiled"))

    @property
    def imbalance(self) -> float:
        """How much less than the worst stage the least one needs, as a part of the worst: 0 for equal stages."""
        sizes = [stage.judged_bytes for stage in self.stages]
        return 1 - min(sizes) / max(sizes) if max(sizes) else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class VariantResult(Generic[_ResultT]):
    """One variant of a job, or of a command."""

    settings: tuple[Setting, ...] | tuple[OptionSetting, ...]  # what it has otherwise than the config, or the script
    result: _ResultT | None  # what it found; None if it failed
    error: MsTuneError | None  # why


@dataclass(frozen=True, slots=True, eq=False)
class SweepResult(Generic[_ResultT]):
    """Variants of a job, or of a command, each simulated."""

    folder: Path  # where all of them are kept
    variants: tuple[VariantResult[_ResultT], ...]  # in the order that the user named them


@dataclass(frozen=True, slots=True, eq=False)
class ComparedRank:
    """One rank, simulated and real."""

    rank: int | None  # its number; None if the traces do not tell
    simulated: RankReport  # the simulated run
    real: RankReport  # the run on a device


@dataclass(frozen=True, slots=True, eq=False)
class RealComparison:
    """A simulated and a real run of one job side by side."""

    simulated: Path  # where the simulated run is kept
    real: Path  # where the real one is kept
    ranks: tuple[ComparedRank, ...]  # the ranks that are in both
    only_real: tuple[int | None, ...]  # ranks that were not simulated


_SHARE = 0.001
_PADDING = 1 * MIB  # the allocator rounds every tensor up


@dataclass(frozen=True, slots=True)
class BesideTheory:
    """One content of a rank's memory."""

    content: str  # its name, as `ms_tune.enums.MemoryCategory` has it
    measured: int  # bytes at the peak
    expected: int  # bytes by theory

    @property
    def difference(self) -> float | None:
        """How much more than by theory, as a part of theory; None where theory expects nothing."""
        return (self.measured - self.expected) / self.expected if self.expected else None

    @property
    def agrees(self) -> bool:
        """Whether the two differ by no more than the allocator's padding."""
        return abs(self.measured - self.expected) <= max(_SHARE * self.expected, _PADDING)


def beside_theory(theory: Mapping[str, int], contents: Mapping[MemoryCategory, int]) -> tuple[BesideTheory, ...]:
    """Theory and measurement side by side; empty where theory tells nothing."""
    measured = {content.value: size for content, size in contents.items()}
    return tuple(BesideTheory(content, measured.get(content, 0), expected) for content, expected in theory.items())


def unlike_theory(pairs: Iterable[BesideTheory]) -> Iterator[Message]:
    """What was measured otherwise than it should be: one of the two is wrong."""
    for pair in pairs:
        if not pair.agrees:
            yield msg(
                "reference.unlike-theory",
                content=msg(f"memory.content.{pair.content}"),
                measured=pair.measured,
                theory=pair.expected,
            )
