"""From what small dryruns held to the memory table that plans are made from."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from ms_tune.fit.costs import EXTRA
from ms_tune.fit.lines import LayerBytes, between, layer_bytes, line_of_some, lines_beside, lines_of, parted
from ms_tune.fit.probes import DENSE
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.table import End, Kept, LayerKind, Recompute, Table, Update

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ms_tune.fit.costs import Costs
    from ms_tune.fit.job import PlannedJob
    from ms_tune.fit.lines import Line
    from ms_tune.fit.measure import Figures
    from ms_tune.fit.probes import Asked, Model

_BACKWARD = "backward"
_FULL = "full recompute"  # as ms_tune.layers.stage names it in a layer's kind
_UNIT = 1000  # of time: the forward pass of a dense layer


@dataclass(frozen=True, slots=True)
class Seen:
    """A probe with what it found."""

    asked: Asked
    figures: Figures


class Measured:
    """All lines of a job's stages.

    Args:
        seen: What was found.
        model: The job's layers.
    """

    def __init__(self, seen: Sequence[Seen], model: Model) -> None:
        self.model = model
        self._runs: dict[tuple[str, Recompute, int], list[Figures]] = {}
        for one in seen:
            key = (one.asked.made_of, one.asked.kind, one.asked.probe.stage)
            self._runs.setdefault(key, []).append(one.figures)
        for runs in self._runs.values():
            runs.sort(key=lambda figures: figures.layers)
        self._some: dict[int, tuple[Figures, int]] = {}
        self._lines = {key: lines_of(*runs[:2]) for key, runs in self._runs.items() if len(runs) > 1}

    def stages(self, made_of: str) -> list[int]:
        """The stages that have lines."""
        return sorted(stage for made, kind, stage in self._lines if (made, kind) == (made_of, Recompute.NONE))

    def kinds(self) -> list[Recompute]:
        """The kinds of recompute that were measured."""
        return list(dict.fromkeys(kind for made, kind, _ in self._runs if made == self.model.main))

    def few(self, made_of: str, kind: Recompute, stage: int) -> Figures | None:
        """The smallest run."""
        runs = self._runs.get((made_of, kind, stage))
        return runs[0] if runs else None

    def lasting(self, made_of: str) -> Fraction:
        """What one layer holds all the time."""
        stages = self.stages(made_of)
        return min(line.lasting for stage in stages for line in self._lines[made_of, Recompute.NONE, stage])

    def usual(self, made_of: str, kind: Recompute, stage: int) -> dict[str, Line]:
        """The lines of the moments at which layers hold what they hold all the time and their activations, by phase."""
        plain = self._lines[made_of, Recompute.NONE, stage]
        lines = self._lines.get((made_of, kind, stage))
        if lines is None:
            few, one = self.few(made_of, Recompute.NONE, stage), self.few(made_of, kind, stage)
            lines = () if few is None or one is None else tuple(lines_beside(one, few, plain))
        found, _ = parted(lines, self.lasting(made_of))
        return {line.phase: line for line in found}

    def updates(self, made_of: str, stage: int) -> list[Line]:
        """The lines of the moments at which layers hold more than that, whatever they recompute."""
        found: list[Line] = []
        for kind in (Recompute.NONE, Recompute.FULL):
            usual, others = parted(self._lines.get((made_of, kind, stage), ()), self.lasting(made_of))
            found += others
            if kind is Recompute.FULL and self.hidden:
                found += usual
        return found

    def highest(self, made_of: str, kind: Recompute, stage: int) -> Line | None:
        """The line that decides with all layers of the stage."""
        lines = self.usual(made_of, kind, stage).values()
        whole = self.model.whole[stage]
        return max(lines, key=lambda line: (line.at(whole), line.slope), default=None)

    def fragments(self, stages: int) -> tuple[int, ...]:
        """What each stage loses between its blocks, as small runs do: with more layers it is next to no more."""
        lost: dict[int, int] = {}
        for (_, _, stage), runs in self._runs.items():
            most = max(figures.footprint - figures.peak for figures in runs)
            lost[stage] = max(lost.get(stage, 0), most, 0)
        middle = max((size for stage, size in lost.items() if 0 < stage < stages - 1), default=max(lost.values()))
        return tuple(lost.get(stage, middle) for stage in range(stages))

    def in_backward(self, made_of: str, kind: Recompute) -> list[Line]:
        """The line of each stage's backward pass; where a stage has none, of the moments that decide."""
        stages = self.stages(made_of)
        lines = [self.usual(made_of, kind, stage).get(_BACKWARD) for stage in stages]
        if None in lines:
            lines = [self.highest(made_of, kind, stage) for stage in stages]
        return [line for line in lines if line is not None]

    def kept(self, made_of: str, kind: Recompute) -> LayerBytes | None:
        """What a layer adds to any stage."""
        lines = self.in_backward(made_of, kind)
        if kind is Recompute.FULL and self.hidden and made_of == self.model.main:
            some = [self._of_some(made_of, stage) for stage in self.stages(made_of)]
            lines = [line for line in some if line is not None] or lines
        return layer_bytes(lines) if lines else None

    @cached_property
    def hidden(self) -> bool:
        """Whether stages that recompute everything are at their peak at another moment, which hides what their layers keep.

        Gradients are reduced then, a copy of each layer's beside them (seen with a sharded optimizer and several chunks).
        """
        lines = self.in_backward(self.model.main, Recompute.FULL) if Recompute.FULL in self.kinds() else []
        return bool(lines) and not layer_bytes(lines).plausible

    def with_some(self, runs: Sequence[Figures]) -> None:
        """Runs in which some layers of each stage are recomputed as a whole, and the others recompute nothing."""
        for figures in runs:
            some = sum(count for kind, count in figures.kinds.items() if _FULL in kind)
            if some:
                self._some[figures.stage] = figures, some

    def _of_some(self, made_of: str, stage: int) -> Line | None:
        plain, line = (
            self.few(made_of, Recompute.NONE, stage),
            self.usual(made_of, Recompute.NONE, stage).get(_BACKWARD),
        )
        if stage not in self._some or plain is None or line is None:
            return None
        mixed, some = self._some[stage]
        return line_of_some(mixed, plain, line, some)

    def base(self, made_of: str, kind: Recompute, stage: int) -> Fraction:
        """What the stage holds anyhow while layers go through their backward pass."""
        lines = self.usual(made_of, kind, stage)
        highest = self.highest(made_of, kind, stage)
        return lines[_BACKWARD].base if _BACKWARD in lines else highest.base if highest else Fraction(0)


def table_of(job: PlannedJob, measured: Measured, costs: Costs, limit_bytes: int) -> Table:
    """The table of a job.

    Args:
        job: The job.
        measured: What its stages were seen to hold.
        costs: What the parts of the model cost beside each other.
        limit_bytes: What a stage may hold.
    """
    model, main = measured.model, measured.model.main
    layers = {made: _layers(measured, made) for made in model.counts if measured.stages(made)}
    pipeline = job.first.pipeline
    bases = _bases(job, measured, layers)
    whole = min(bases)
    last = job.stages - 1
    highest = measured.highest(main, Recompute.NONE, last)
    late = highest.base - measured.base(main, Recompute.NONE, last) if highest else Fraction(0)
    forward = {made: costs.dense if made == DENSE else costs.experts for made in model.counts}
    return Table(
        stages=job.stages,
        chunks=job.chunks,
        micro_batches=pipeline.micro_batches,
        limit_bytes=limit_bytes,
        order=pipeline.schedule or Schedule.ONE_FORWARD_ONE_BACKWARD,
        layers=tuple(
            _kind(made, count, round(_UNIT * forward[made]), layers.get(made, layers[main]), measured)
            for made, count in model.counts.items()
        ),
        tail=End(forward=round(_UNIT * costs.head), transient_bytes=max(0, round(late))),
        constant_bytes=max(0, round(whole)),
        stage_bytes=tuple(round(base - whole) for base in bases),
        update=_update(measured, job.stages),
    )


def _layers(measured: Measured, made_of: str) -> dict[Recompute, LayerBytes]:
    """What a layer adds to any stage, by what it recomputes."""
    found = {}
    for kind in measured.kinds():
        kept = measured.kept(made_of, kind)
        if kept is not None:
            found[kind] = kept
    return found


def _kind(
    made_of: str, count: int, forward: int, layers: Mapping[Recompute, LayerBytes], measured: Measured
) -> LayerKind:
    lasting = round(layers[Recompute.NONE].lasting)
    most = layers[Recompute.NONE].activations
    kept = {}
    for kind, layer in layers.items():
        transient = _transient(measured, kind) if kind is Recompute.FULL else 0
        activations = max(0, round(min(layer.activations, most)))
        kept[kind] = Kept(activations, EXTRA[kind], transient, round(layer.once))
    return LayerKind(made_of, count, forward, lasting, kept)


def _transient(measured: Measured, kind: Recompute) -> int:
    """What a stage holds on top while a layer is computed once more."""
    main = measured.model.main
    if measured.hidden:
        return 0
    more = [
        measured.base(main, kind, stage) - measured.base(main, Recompute.NONE, stage)
        for stage in measured.stages(main)
        if measured.usual(main, kind, stage)
    ]
    return max(0, round(max(more, default=Fraction(0))))


def _bases(job: PlannedJob, measured: Measured, layers: Mapping[str, Mapping[Recompute, LayerBytes]]) -> list[Fraction]:
    """What each stage holds anyhow: as seen, or between what two others in the middle hold."""
    main = measured.model.main
    seen = {}
    for stage in range(job.stages):
        if stage == 0 and measured.stages(DENSE) == [0] and main != DENSE:
            seen[stage] = measured.base(DENSE, Recompute.NONE, 0)
            continue
        few = measured.few(main, Recompute.NONE, stage)
        if few is not None:
            held = sum(
                (
                    layers.get(made, layers[main])[Recompute.NONE].in_flight(in_flight_of(job, stage, chunk)) * count
                    for (chunk, made), count in few.cells.items()
                ),
                Fraction(0),
            )
            seen[stage] = few.peaks.get(_BACKWARD, few.peak) - held
    middle = [(in_flight_of(job, stage), base) for stage, base in seen.items() if 0 < stage < job.stages - 1]
    return [seen[stage] if stage in seen else between(middle, in_flight_of(job, stage)) for stage in range(job.stages)]


def in_flight_of(job: PlannedJob, stage: int, chunk: int | None = None) -> Fraction:
    """Micro-batches in flight of a chunk, or the mean of all."""
    held = job.first.pipeline.in_flight(stage) or (1,)
    return Fraction(held[chunk]) if chunk is not None else Fraction(sum(held), len(held))


def _update(measured: Measured, stages: int) -> Update | None:
    """What stages and layers hold while gradients are reduced and weights updated; None where that is nothing more."""
    main, whole = measured.model.main, measured.model.whole
    lines = {}
    for stage in measured.stages(main):
        found = measured.updates(main, stage)
        if found:
            lines[stage] = max(found, key=lambda line: line.at(whole[stage]))
    if not lines:
        return None
    usual = lines.get(1) or max(lines.values(), key=lambda line: line.at(max(whole)))
    chosen = [lines.get(stage, usual) for stage in range(stages)]
    return Update(tuple(round(line.slope) for line in chosen), tuple(round(line.base) for line in chosen))
