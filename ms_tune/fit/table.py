"""From what small dryruns held to the memory table that plans are made from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from ms_tune.fit.costs import EXTRA
from ms_tune.fit.lines import (
    LayerBytes,
    between,
    lasting_of,
    layer_bytes,
    lines_beside,
    lines_of,
    parted,
    phases_alike,
)
from ms_tune.fit.recomputed import OnTop, freed_on, on_top_alone, on_top_of, recomputed_kinds, told_apart
from ms_tune.layers.stage import DENSE
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.table import Again, End, Kept, LayerKind, Recompute, Table, Update

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ms_tune.fit.costs import Costs
    from ms_tune.fit.job import PlannedJob
    from ms_tune.fit.lines import Line
    from ms_tune.fit.measure import Figures
    from ms_tune.fit.probes import Asked, Model
    from ms_tune.fit.recomputed import Freed

_BACKWARD = "backward"
_TWO = 2  # runs that make a line; lines that tell what a layer keeps
DENSE_UNITS = 1000  # of time: the forward pass of a dense layer


@dataclass(frozen=True, slots=True)
class Seen:
    """A probe with what it found."""

    asked: Asked
    figures: Figures


def _only(figures: Figures, phases: Collection[str]) -> Figures:
    """Figures of some phases alone."""
    return replace(figures, peaks={phase: peak for phase, peak in figures.peaks.items() if phase in phases})


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
        self._some: dict[int, list[Figures]] = {}
        self._first: dict[int, Figures] = {}
        self._alone: dict[int, Figures] = {}
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
        return lasting_of([line for stage in stages for line in self._lines[made_of, Recompute.NONE, stage]])

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
        for kind in (Recompute.NONE, Recompute.FULL, Recompute.SWAP):
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

    def phase(self, made_of: str, stage: int) -> str:
        """The phase whose peak decides with all layers of the stage, if they recompute nothing."""
        highest = self.highest(made_of, Recompute.NONE, stage)
        return highest.phase if highest is not None else _BACKWARD

    def deciding(self, made_of: str, kind: Recompute) -> list[Line]:
        """The line of each stage at the moment that decides if layers recompute nothing; else of the one that does with this kind."""
        stages = self.stages(made_of)
        lines = [self.usual(made_of, kind, stage).get(self.phase(made_of, stage)) for stage in stages]
        if None in lines:
            lines = [self.highest(made_of, kind, stage) for stage in stages]
        return [line for line in lines if line is not None]

    def kept(self, made_of: str, kind: Recompute) -> LayerBytes | None:
        """What a layer adds to any stage."""
        lines = self.deciding(made_of, kind)
        if kind is Recompute.FULL and made_of == self.model.main and self.freed:
            lines = [freed.line for freed in self.freed.values()]
            # What is left over at the last stage is told apart, and the others are exact.
            lines = lines[:-1] if len(lines) > _TWO else lines
        return layer_bytes(lines) if lines else None

    @cached_property
    def hidden(self) -> bool:
        """Whether stages that recompute everything are at their peak while gradients are reduced, a copy of each layer's beside them.

        Seen with a sharded optimizer and several chunks. What layers keep of a micro-batch is not in it.
        """
        lines = self.deciding(self.model.main, Recompute.FULL) if Recompute.FULL in self.kinds() else []
        return bool(lines) and not layer_bytes(lines).plausible

    def swapped(self, made_of: str) -> int:
        """What of a layer's activations goes to the host for a micro-batch, where layers swap."""
        for (made, kind, _), runs in self._runs.items():
            if (made, kind) == (made_of, Recompute.SWAP) and len(runs) > 1:
                return max(0, (runs[1].swapped - runs[0].swapped) // (runs[1].layers - runs[0].layers))
        return 0

    def fetched(self, made_of: str) -> int:
        """What stages hold on top while a layer that swaps is at its backward pass."""
        more = [
            self.base(made_of, Recompute.SWAP, stage) - self.base(made_of, Recompute.NONE, stage)
            for stage in self.stages(made_of)
            if self.highest(made_of, Recompute.SWAP, stage) is not None
        ]
        return max(0, round(max(more, default=Fraction(0))))

    def with_some(self, runs: Sequence[Figures]) -> None:
        """Runs in which some layers of each cell are recomputed in full, and the others recompute nothing."""
        for figures in runs:
            self._some.setdefault(figures.stage, []).append(figures)

    def with_first(self, runs: Sequence[Figures]) -> None:
        """The same with recomputed layers in the first chunk alone."""
        self._first = {figures.stage: figures for figures in runs}

    def with_alone(self, runs: Sequence[Figures]) -> None:
        """Runs in which the first chunk's layers are recomputed in full, and no others."""
        self._alone = {figures.stage: figures for figures in runs}

    @cached_property
    def freed(self) -> dict[int, Freed]:
        """What full recomputation frees, by stage; of all stages with lines, or of none."""
        main = self.model.main
        found: dict[int, Freed] = {}
        for stage in self.stages(main) if Recompute.FULL in self.kinds() else ():
            plain = self.highest(main, Recompute.NONE, stage)
            one = freed_on(plain, self._some.get(stage, ()), main, self._others(stage)) if plain is not None else None
            if one is None or plain is None:
                return {}
            found[stage] = told_apart(one, plain, self._first[stage], main) if stage in self._first else one
        return found

    def _others(self, stage: int) -> Fraction:
        """What a dense layer frees if it is recomputed in full, where most have experts."""
        if self.model.main == DENSE:
            return Fraction(0)
        phase = self.phase(self.model.main, stage)
        kinds = (Recompute.NONE, Recompute.FULL)
        lines = [{line.phase: line for line in self._lines.get((DENSE, kind, stage), ())}.get(phase) for kind in kinds]
        plain, full = lines
        return plain.slope - full.slope if plain is not None and full is not None else Fraction(0)

    def on_top(self, stage: int) -> OnTop:
        """What a stage holds on top while its layers are computed once more."""
        main = self.model.main
        freed, plain = self.freed.get(stage), self.highest(main, Recompute.NONE, stage)
        runs = self._runs.get((main, Recompute.FULL, stage), [])
        if freed is None or plain is None:
            return OnTop()
        if self.hidden:
            return on_top_alone(freed, plain, self._alone[stage], main) if stage in self._alone else OnTop()
        full = self.kept(main, Recompute.FULL)
        phases = self.usual(main, Recompute.FULL, stage)
        if len(runs) < _TWO or full is None or not phases:
            return OnTop()
        whole = [(_only(figures, phases), plain.at(figures.layers)) for figures in runs[:_TWO]]
        return on_top_of(freed, whole, main, max(full.activations, Fraction(0)))

    def on_top_of_first_chunk(
        self, stage: int, layers: Mapping[str, Mapping[Recompute, LayerBytes]]
    ) -> Fraction | None:
        """What a stage holds on top where its first chunk's layers are recomputed in full and no others; None where no run tells."""
        main, figures = self.model.main, self._alone.get(stage)
        plain, few = self.highest(main, Recompute.NONE, stage), self.few(main, Recompute.NONE, stage)
        if figures is None or plain is None or few is None:
            return None
        held = Fraction((figures.in_flight or (1,))[0])
        freed = Fraction(0)
        for made_of, count in recomputed_kinds(figures):
            rows = layers.get(made_of, layers[main])
            freed += count * (rows[Recompute.NONE].in_flight(held) - rows[Recompute.FULL].in_flight(held))
        usual = phases_alike(figures, few, plain.lasting)
        return max(_only(figures, usual).peak - plain.at(figures.layers) + freed, Fraction(0)) if usual else None

    def base(self, made_of: str, kind: Recompute, stage: int) -> Fraction:
        """What the stage holds anyhow at the moment that decides."""
        highest = self.highest(made_of, kind, stage)
        return highest.base if highest else Fraction(0)

    def lasting_base(self, made_of: str, stage: int) -> Fraction:
        """What of that is weights, optimizer state and gradients."""
        few, highest = self.few(made_of, Recompute.NONE, stage), self.highest(made_of, Recompute.NONE, stage)
        if few is None or highest is None:
            return Fraction(0)
        return few.lasting[highest.phase] - highest.lasting * few.layers


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
    late = _late(job, measured, bases)
    bases[-1] -= late
    whole = min(bases)
    again, left = _again(job, measured, layers, late)
    forward = {made: costs.dense if made == DENSE else costs.experts for made in model.counts}
    return Table(
        stages=job.stages,
        chunks=job.chunks,
        micro_batches=pipeline.micro_batches,
        limit_bytes=limit_bytes,
        order=pipeline.schedule or Schedule.ONE_FORWARD_ONE_BACKWARD,
        layers=tuple(
            _swapping(
                _kind(
                    *(made, count, round(DENSE_UNITS * forward[made]), layers.get(made, layers[main])),
                    left if made == main else 0,
                ),
                measured,
                made if made in layers else main,
            )
            for made, count in model.counts.items()
        ),
        tail=End(forward=round(DENSE_UNITS * costs.head), transient_bytes=round(late)),
        constant_bytes=max(0, round(whole)),
        stage_bytes=tuple(round(base - whole) for base in bases),
        update=_update(measured, job.stages),
        again=again,
    )


def _layers(measured: Measured, made_of: str) -> dict[Recompute, LayerBytes]:
    """What a layer adds to any stage, by what it recomputes."""
    found = {}
    for kind in measured.kinds():
        kept = measured.kept(made_of, kind)
        if kept is not None:
            found[kind] = kept
    return found


def _kind(made_of: str, count: int, forward: int, layers: Mapping[Recompute, LayerBytes], left: int) -> LayerKind:
    lasting = round(layers[Recompute.NONE].lasting)
    most = layers[Recompute.NONE].activations
    kept = {}
    for kind, layer in layers.items():
        activations = max(0, round(min(layer.activations, most)))
        stays = left if kind is Recompute.FULL else 0
        kept[kind] = Kept(activations, EXTRA[kind], 0, round(layer.once), stays)
    return LayerKind(made_of, count, forward, lasting, kept)


def _swapping(layer: LayerKind, measured: Measured, made_of: str) -> LayerKind:
    """The row with what goes to the host, and is back while a layer is at its backward pass."""
    kept = layer.recompute.get(Recompute.SWAP)
    if kept is None:
        return layer
    kept = kept._replace(swapped_bytes=measured.swapped(made_of), transient_bytes=measured.fetched(made_of))
    return replace(layer, recompute={**layer.recompute, Recompute.SWAP: kept})


def _late(job: PlannedJob, measured: Measured, bases: Sequence[Fraction]) -> Fraction:
    """What the last stage holds on top when the last forward pass ends: logits and their loss.

    It is what the stage holds beside its weights and beyond what those in the middle would with as little in flight.

    Args:
        job: The job.
        measured: What its stages were seen to hold.
        bases: What each stage holds anyhow.
    """
    main, last = measured.model.main, job.stages - 1
    if not last:
        highest, lines = measured.highest(main, Recompute.NONE, 0), measured.usual(main, Recompute.NONE, 0)
        late = highest.base - lines[_BACKWARD].base if highest is not None and _BACKWARD in lines else Fraction(0)
        return max(late, Fraction(0))
    other = _middle(last)
    here = measured.base(main, Recompute.NONE, last) - measured.lasting_base(main, last)
    there = measured.base(main, Recompute.NONE, other) - measured.lasting_base(main, other)
    fewer, more = (in_flight_of(job, stage) for stage in (last - 1, other))
    if fewer < more:
        there -= (bases[other] - bases[last - 1]) / (more - fewer) * (more - in_flight_of(job, last))
    return min(max(here - there, Fraction(0)), bases[last])


def _middle(last: int) -> int:
    """A stage that is not the last, and not the first where there is another."""
    return min(1, max(last - 1, 0))


def _of_first_chunk(
    job: PlannedJob, measured: Measured, layers: Mapping[str, Mapping[Recompute, LayerBytes]], stage: int
) -> int | None:
    """What comes on top while a layer of a stage's first chunk is computed once more; None where no run tells.

    It is another amount than where all layers are recomputed: in a static graph the other chunks' backward passes come first, and
    when those of the first chunk begin, what forward passes alone need is gone, such as a copy of the embedding.
    """
    known = stage if stage in measured.stages(measured.model.main) else _middle(job.stages - 1)
    found = measured.on_top_of_first_chunk(known, layers)
    return None if found is None else round(found)


def _again(
    job: PlannedJob, measured: Measured, layers: Mapping[str, Mapping[Recompute, LayerBytes]], late: Fraction
) -> tuple[Again | None, int]:
    """What layers recomputed in full make each stage hold on top, and what one leaves until its backward pass ends."""
    main, last = measured.model.main, job.stages - 1
    if Recompute.FULL not in layers[main]:
        return None, 0
    if not measured.freed:
        # No run tells of some layers that are recomputed: those in which all are must do.
        kinds = (Recompute.FULL, Recompute.NONE)
        sizes = [
            measured.base(main, kinds[0], stage) - measured.base(main, kinds[1], stage)
            for stage in ([] if measured.hidden else measured.stages(main))
        ]
        most, nothing = max(0, round(max(sizes, default=Fraction(0)))), (0,) * job.stages
        transients = tuple(most + (round(late) if stage == last and most > late else 0) for stage in range(job.stages))
        firsts = [_of_first_chunk(job, measured, layers, stage) for stage in range(job.stages)]
        alone = [one if one is not None else every for one, every in zip(firsts, transients, strict=True)]
        return Again(nothing, nothing * job.chunks, (*alone, *(transients * (job.chunks - 1)))), 0
    on_top = {stage: measured.on_top(stage) for stage in measured.freed}
    rows, beside = [], list[int]()
    for stage in range(job.stages):
        known = stage if stage in measured.freed else _middle(last)
        freed, transient = measured.freed[known], on_top[known].transient
        if stage == last:
            there = transient > 0 or on_top[known].left > 0
            transient = transient + late if there else min(on_top[_middle(last)].transient, late)
        rows.append((round(freed.first), max(0, round(transient))))
        beside += _beside(job, freed, layers[main], known)
    left = max(round(one.left) for one in on_top.values())
    first, transients = (tuple(column) for column in zip(*rows, strict=True))
    by_cell = tuple(beside[stage * job.chunks + chunk] for chunk in range(job.chunks) for stage in range(job.stages))
    return Again(first, by_cell, transients * job.chunks), left


def _beside(job: PlannedJob, freed: Freed, layers: Mapping[Recompute, LayerBytes], stage: int) -> Iterator[int]:
    """What a layer that is recomputed in full holds beside its row, in each chunk of a stage: the first, and of the others the mean."""
    full, none = layers[Recompute.FULL], layers[Recompute.NONE]
    mean = first = freed.line.slope - full.in_flight(in_flight_of(job, stage))
    if freed.in_first_chunk is not None:
        held = in_flight_of(job, stage, 0)
        first = none.in_flight(held) - freed.in_first_chunk - full.in_flight(held)
    yield round(first)
    for _ in range(1, job.chunks):
        yield round((mean * job.chunks - first) / (job.chunks - 1))


def _phase(measured: Measured, stage: int, last: int) -> str:
    """The phase that decides; of a stage that has one run only, that of the one beside it."""
    known = stage if stage in measured.stages(measured.model.main) else _middle(last)
    return measured.phase(measured.model.main, known)


def _bases(job: PlannedJob, measured: Measured, layers: Mapping[str, Mapping[Recompute, LayerBytes]]) -> list[Fraction]:
    """What each stage holds anyhow: as seen, or between what two others in the middle hold."""
    main, last = measured.model.main, job.stages - 1
    seen = {}
    for stage in range(job.stages):
        few = measured.few(main, Recompute.NONE, stage)
        if few is not None:
            held = sum(
                (
                    layers.get(made, layers[main])[Recompute.NONE].in_flight(in_flight_of(job, stage, chunk)) * count
                    for (chunk, made), count in few.cells.items()
                ),
                Fraction(0),
            )
            seen[stage] = few.peaks.get(_phase(measured, stage, last), few.peak) - held
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
