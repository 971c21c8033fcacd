"""Read the steps from a training log of any length: runs, their ranks, and the events between the steps.

A file may contain several runs, one after the other: a run ends where the step counter decreases, where the total
number of steps changes, or where a step repeats with another value (the norm of its gradients, or the loss). It may
contain the lines of several ranks: with prefixes, or without, if the same step repeats with the same values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.errors import NoStepsError, TraceError
from ms_tune.readers.lines import decode_line, find_likely_lines, parse_rank, read_line_blocks, reading, split_rank
from ms_tune.readers.logged_steps import (
    FLOATS,
    MOST_COUNTED,
    MOST_SECONDS,
    MOST_STEPS,
    NOT_LOGGED,
    Form,
    LoggedMemory,
    LoggedTraining,
    RankSteps,
    Remark,
    StepLine,
    StepLineKind,
    TrainingLog,
    learn_line_layout,
    make_step,
    parse_rate,
    parse_steps,
    read_baseline,
)
from ms_tune.readers.memory_log import parse_reports
from ms_tune.readers.plain_pickle import no_collection
from ms_tune.text import msg

if TYPE_CHECKING:
    _Layout = tuple[StepLineKind, Callable[[bytes], tuple[bytes, ...]]]

# Values that RankSteps names differently, or that only some forms print.
_COLUMNS = {
    "loss": "loss",
    "allocated": "peak",
    **{name: name for name in FLOATS if name not in {"allocated", "reserved"}},
}
_MOST_STEPS = 1_000_000  # per file; further ones are only counted
_MOST_RUNS = 1000
_MOST_RANKS = 4096
_MOST_REMARKS = 10_000
_MOST_DAMAGED = 100
_TIMES = (b"per_step_time", b"elapsed time per iteration", b"samples/s/p", b", Time: ")
# megatron/training/checkpointing.py and training.py; mindformers/core/callback/callback.py.
_REMARKS = {
    "saving checkpoint at iteration": "checkpoint",
    "......Saving ckpt......": "checkpoint",
    "validation loss at": "evaluation",
    "Eval result: ": "evaluation",
}
_TAIL = re.compile(r"==> \S{0,400}worker_(\d{1,6})\.log <==")
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_MOST_LAYOUTS = 20_000  # layouts to keep; a log has some dozen
_LONGEST = 4096  # bytes of a line; the layouts of longer ones are not kept
_MOST_WAITING = 20_000  # steps
_NONE = StepLineKind(None, ())
_UNKNOWN: _Layout = (StepLineKind(None, ("unknown",)), lambda _line: ())
_NEEDLES = (*_TIMES, b" memory (MB) |", *(text.encode() for text in _REMARKS), b".log <==")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # a text's first two bytes


class Rows(NamedTuple):
    """The steps of a batch in columns of one length."""

    form: Form  # the framework that printed them
    ranks: Sequence[int]  # the rank before each line; empty if lines have no ranks
    total: Sequence[int]  # steps of an epoch or of the job, as in each line
    number: Sequence[int]  # step counters over all epochs
    # The other columns of `ms_tune.readers.logged_steps.RankSteps` that are logged.
    columns: Mapping[str, Sequence[float]]


class LineBatch:
    """Consecutive lines of one form with the same fields."""

    def __init__(self, kind: StepLineKind) -> None:
        self.kind = kind
        self.fields: list[tuple[bytes, ...]] = []
        self.lines: list[int] = []
        self._rates: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self.fields)

    def set_rate(self, value: float) -> None:
        """Set the samples/s per card of the latest step."""
        self._rates[len(self.fields) - 1] = value if value < math.inf else NOT_LOGGED

    def iterate_steps(self, begin: int, end: int) -> Iterator[tuple[int | None, StepLine | None, int, float]]:
        """Yield each step: the rank before it, the step (None for a damaged one), its line and its rate."""
        for place in range(begin, end):
            values = {name: value.decode() for name, value in zip(self.kind.names, self.fields[place], strict=True)}
            rank = int(values.pop("rank")) if "rank" in values else None
            step = make_step(self.kind.form, values) if self.kind.form else None
            yield rank, step, self.lines[place], self._rates.get(place, NOT_LOGGED)

    def make_rows(self, *, counted_only: bool = False) -> Rows | None:
        """Return all steps; None if they must be processed one by one: a value is out of bounds, or epochs are counted.

        With ``counted_only``, if no step will be kept, leave out the columns that are not needed to count them.
        """
        form = self.kind.form
        if form is None or form is Form.MINDSPEED:
            return None
        values = dict(zip(self.kind.names, zip(*self.fields, strict=True), strict=True))
        total = _parse_whole_numbers(values["total"])
        number = _parse_whole_numbers(values["number"])
        epoch = max(_parse_whole_numbers(values["epoch"])) if "epoch" in values else 0
        seconds = [float(one) / 1000 for one in values["time"]]
        kept = {} if counted_only else values
        counted = {name: _parse_whole_numbers(kept[name]) for name in MOST_COUNTED if name in kept}
        floats = {column: [*map(float, kept[name])] for name, column in _COLUMNS.items() if name in kept}
        if (
            not 0 < min(seconds) <= max(seconds) < MOST_SECONDS
            or max(*number, *total, epoch * max(*total, 1)) > MOST_STEPS
            or any(max(column) > MOST_COUNTED[name] for name, column in counted.items())
            or any(max(column) == math.inf for column in floats.values())
        ):
            return None
        if epoch > 1:
            epochs = _parse_whole_numbers(values["epoch"])
            number = [one + max(e - 1, 0) * of for one, e, of in zip(number, epochs, total, strict=True)]
        if self._rates:
            floats["rate"] = [self._rates.get(place, NOT_LOGGED) for place in range(len(self))]
        columns: dict[str, Sequence[float]] = {"line": self.lines, "seconds": seconds, **counted, **floats}
        return Rows(form, _parse_whole_numbers(values["rank"]) if "rank" in values else (), total, number, columns)


def _parse_whole_numbers(column: Sequence[bytes]) -> list[int]:
    # usually all values are the same
    if column.count(column[0]) == len(column):
        return [int(column[0])] * len(column)
    return [*map(int, column)]


@no_collection()
def read_training_log(path: Path, on_bytes: Callable[[int], None] = lambda _count: None) -> TrainingLog:
    """Read a log of any length, or a JSON file of lists (a baseline of MindSpeed-LLM's or -MM's tests) as one run."""
    reader, ended, head = _TrainingLogReader(), True, b""
    with reading(path), path.open("rb") as file:
        for body, first in read_line_blocks(file):
            if first == 1 and body.lstrip()[:1] == b"{" and path.suffix == ".json":
                return TrainingLog(path, parse_rank(path), (read_baseline(path),))
            head = head or body[:2]
            reader.read(find_likely_lines(body, first, _NEEDLES))
            ended = body.endswith(b"\n")
            on_bytes(len(body))
    reader.place_batch()
    runs = tuple(reader.runs)
    if not runs:
        if reader.damaged:
            raise TraceError(
                msg("trace.steps.damaged"), msg("trace.steps.none.hint"), path=path, line=reader.damaged[0]
            )
        raise _without_steps(path, head)
    return TrainingLog(
        path,
        parse_rank(path),
        runs,
        damaged=tuple(reader.damaged),
        damaged_count=reader.damaged_count,
        dropped=reader.dropped,
        orphans=reader.orphans,
        cut_off=not ended,
    )


def _without_steps(path: Path, head: bytes) -> TraceError:
    file = quote(str(path))
    if head == b"\x1f\x8b":
        return TraceError(msg("trace.log.packed"), msg("trace.log.packed.hint", file=file), path=path)
    if head in _UTF_16:
        return TraceError(msg("trace.log.utf-16"), msg("trace.log.utf-16.hint", file=file), path=path)
    return NoStepsError(msg("trace.steps.none"), msg("trace.steps.none.hint"), path=path)


@dataclass(slots=True)
class _StepWriter:
    """A writer of lines: one rank, or, without prefixes, perhaps several."""

    run: int = -1  # number of its current run
    last: int = 0  # the largest step number in the run
    epoch: int = 0
    offset: int = 0  # steps of the earlier epochs, for lines without the number of steps per epoch


class _TrainingLogReader:
    def __init__(self) -> None:
        self.runs: list[LoggedTraining] = []
        self.damaged: list[int] = []
        self.damaged_count = self.dropped = self.orphans = 0
        self._step_count = 0
        self._writers: dict[int | None, _StepWriter] = {}
        self._tailed: int | None = None  # the rank of the lines that `tail -f` shows
        self._latest: RankSteps | None = None
        self._early: dict[int, LoggedMemory] = {}  # memory reports that precede a run's first step

        self._layouts: dict[bytes, _Layout | None] = {}  # by the line with all digits replaced by 0
        self._kinds: dict[StepLineKind, StepLineKind] = {}
        self._batch = LineBatch(_NONE)

    def read(self, lines: Iterable[tuple[int, bytes, bool]]) -> None:
        known, batch = self._layouts, self._batch
        kind, values, numbers = batch.kind, batch.fields, batch.lines
        for number, line, whole in lines:
            layout = known.get(line.translate(_DIGITS), _UNKNOWN)
            if layout is not None and layout[0] is kind and whole:
                values.append(layout[1](line))
                numbers.append(number)
            elif layout is not _UNKNOWN or any(needle in line for needle in _NEEDLES):
                self._read_other_line(number, line, self._layout_for(line) if whole else None, whole=whole)
                batch = self._batch
                kind, values, numbers = batch.kind, batch.fields, batch.lines
        if len(batch) > _MOST_WAITING:
            self.place_batch()

    def _layout_for(self, line: bytes) -> _Layout | None:
        key = line.translate(_DIGITS)
        if key in self._layouts:
            return self._layouts[key]
        found = learn_line_layout(line)
        if found is not None:
            found = (self._kinds.setdefault(found[0], found[0]), found[1])
        if len(self._layouts) >= _MOST_LAYOUTS:
            self._layouts.clear()
        if len(line) <= _LONGEST:
            self._layouts[key] = found
        return found

    def _read_other_line(self, number: int, line: bytes, layout: _Layout | None, *, whole: bool) -> None:
        if layout is None:
            self.place_batch()
            self._read_single_line(number, decode_line(line), whole=whole)
            return
        kind, take = layout
        if kind.form is None:
            rate = float(take(line)[0])
            if len(self._batch):
                self._batch.set_rate(rate)
            else:
                self._set_rate(rate if rate < math.inf else NOT_LOGGED)
            return
        if kind is not self._batch.kind:
            self.place_batch()
            self._batch = LineBatch(kind)
        self._batch.fields.append(take(line))
        self._batch.lines.append(number)

    def place_batch(self) -> None:
        batch, self._batch = self._batch, LineBatch(_NONE)
        if not len(batch):
            return
        rows = batch.make_rows(counted_only=self._step_count >= _MOST_STEPS)
        if rows is None:
            self._place_singly(batch, 0, len(batch))
        elif rows.ranks:
            self._place_by_rank(batch, rows)
        else:
            self._place_unprefixed(batch, rows)

    def _place_unprefixed(self, batch: LineBatch, rows: Rows) -> None:
        falls = [at for at, (one, after) in enumerate(pairwise(rows.number), 1) if after <= one]
        begin = 0
        for end in [*falls, len(batch)]:
            while begin < end:
                place = self._present_steps(self._tailed, rows, begin)
                if place is None:
                    self._place_singly(batch, begin, begin + 1)
                    begin += 1
                else:
                    self._extend_steps(place, rows, range(begin, end))
                    begin = end

    def _place_by_rank(self, batch: LineBatch, rows: Rows) -> None:
        each: dict[int, list[int]] = {}
        for at, rank in enumerate(rows.ranks):
            each.setdefault(rank, []).append(at)
        places = {rank: self._present_steps(rank, rows, some[0]) for rank, some in each.items()}
        rising = all(rows.number[at] < rows.number[after] for some in each.values() for at, after in pairwise(some))
        if not rising or None in places.values() or self._step_count + len(batch) > _MOST_STEPS:
            self._place_singly(batch, 0, len(batch))
            return
        for rank, place in places.items():
            if place is not None:
                self._extend_steps(place, rows, each[rank])
        self._latest = places[rows.ranks[-1]]

    def _present_steps(self, rank: int | None, rows: Rows, at: int) -> RankSteps | None:
        # Return the steps that a step of this rank continues; None without such steps, or if totals differ.
        writer = self._writers.get(rank)
        if writer is None or writer.run < 0 or rows.total.count(self.runs[writer.run].total) < len(rows.total):
            return None
        own = (one for one in self.runs[writer.run].ranks if one.rank == rank and one.form is rows.form)
        found = next(own, None)
        return found if found is not None and rows.number[at] > found.number[-1] else None

    def _extend_steps(self, place: RankSteps, rows: Rows, at: Sequence[int]) -> None:
        kept = at[: max(_MOST_STEPS - self._step_count, 0)]
        self.dropped += len(at) - len(kept)
        if not kept:
            return
        columns = {"number": rows.number, **rows.columns}
        if len(kept) < len(rows.number):
            columns = {name: [*itemgetter(*kept, kept[0])(column)][:-1] for name, column in columns.items()}
        place.extend(columns, len(kept))
        self._step_count += len(kept)
        writer = self._writers[place.rank if place.rank is not None else self._tailed]
        writer.last = max(writer.last, place.number[-1])
        self._latest = place

    def _place_singly(self, batch: LineBatch, begin: int, end: int) -> None:
        for rank, step, line, rate in batch.iterate_steps(begin, end):
            if step is None:
                self._count_damage(line)
            else:
                self._add_step(self._tailed if rank is None else rank, step, line)
            if rate == rate:  # noqa: PLR0124 - NaN is a rate that is not logged
                self._set_rate(rate)

    def _count_damage(self, line: int) -> None:
        self.damaged_count += 1
        if len(self.damaged) < _MOST_DAMAGED:
            self.damaged.append(line)

    def _read_single_line(self, number: int, line: str, *, whole: bool) -> None:
        rank, text = split_rank(line)
        rank = self._tailed if rank is None else rank
        found = False
        for step in parse_steps(text, whole=whole):
            found = True
            if step is None:
                self._count_damage(number)
            else:
                self._add_step(rank, step, number)
        if "samples/s/p" in text:
            self._set_rate(parse_rate(text), whole=whole)
        elif not found:
            self._read_remark(text, number)

    def _add_step(self, rank: int | None, step: StepLine, line: int) -> None:
        writer = self._writers.get(rank)
        if writer is None:
            if len(self._writers) >= _MOST_RANKS:
                self.dropped += 1
                return
            writer = self._writers[rank] = _StepWriter()
        number = _number_in_job(writer, step)
        place = self._steps_for(writer, rank, step, number)
        if place is None or self._step_count >= _MOST_STEPS:
            self.dropped += 1
            return
        self._step_count += 1
        place.add(step, number, line)
        writer.last = max(writer.last, number)
        self._latest = place

    def _steps_for(self, writer: _StepWriter, rank: int | None, step: StepLine, number: int) -> RankSteps | None:
        run = self.runs[writer.run] if writer.run >= 0 else None
        if run is not None and step.total == run.total:
            own = [one for one in run.ranks if one.rank == rank and one.form is step.form]
            if own and number > own[0].number[-1]:
                return own[0]
            # Without prefixes a repeated step may be that of another rank, at most one step late.
            if own and rank is None and number >= writer.last - 1 and _repeats_step(own[0], step, number):
                later = next((one for one in own[1:] if one.number[-1] < number), None)
                return later or _add_rank(run, RankSteps(step.form, None))
        return self._begin_run(writer, rank, step, number)

    def _begin_run(self, writer: _StepWriter, rank: int | None, step: StepLine, number: int) -> RankSteps | None:
        repeated = writer.run >= 0 and number == writer.last
        writer.run += 1
        if writer.run == len(self.runs):
            if writer.run >= _MOST_RUNS:
                writer.run -= 1
                return None
            self.runs.append(LoggedTraining(total=step.total, repeated=repeated, memory=self._early))
            self._early = {}
        if step.form is Form.MINDSPEED and writer.offset:
            writer.offset = 0
        writer.last = 0
        return _add_rank(self.runs[writer.run], RankSteps(step.form, rank))

    def _set_rate(self, rate: float, *, whole: bool = True) -> None:
        if self._latest is None:
            self.orphans += 1
        elif whole:
            self._latest.rate[-1] = rate

    def _read_remark(self, text: str, line: int) -> None:
        if tail := _TAIL.search(text):
            self._tailed = int(tail[1])
        for memory in parse_reports(text) if " memory (MB) |" in text else ():
            # Ranks do not wait for the one that writes steps: the report may belong to the run that begins.
            begun = self.runs and self._latest is not None and self._latest.number[-1] <= memory.steps
            kept = self.runs[-1].memory if begun else self._early
            if memory.rank in kept or len(kept) < _MOST_RANKS:
                kept[memory.rank] = memory
        if not self.runs:
            return
        run = self.runs[-1]
        for words, kind in _REMARKS.items():
            if words in text and len(run.remarks) < _MOST_REMARKS and self._latest is not None:
                run.remarks.append(Remark(kind, self._latest.number[-1], line))


def _number_in_job(writer: _StepWriter, step: StepLine) -> int:
    # Some counters restart with each epoch.
    if step.form is Form.MINDSPEED:
        if step.epoch == writer.epoch + 1 and step.number + writer.offset <= writer.last:
            writer.offset = writer.last
        elif step.epoch < writer.epoch:
            writer.offset = 0
        writer.epoch = step.epoch
        return step.number + writer.offset
    return step.number + max(step.epoch - 1, 0) * step.total


def _repeats_step(steps: RankSteps, step: StepLine, number: int) -> bool:
    # Return whether a known step has the same values as this line: the gradient norm, or else the loss.
    place = next((at for at in range(len(steps) - 1, max(len(steps) - 3, -1), -1) if steps.number[at] == number), None)
    if place is None:
        return False
    for mine, theirs in ((steps.norm[place], step.norm), (steps.loss[place], step.loss)):
        if mine == mine and theirs == theirs:  # noqa: PLR0124 - both are known
            return mine == theirs
    return True


def _add_rank(run: LoggedTraining, rank: RankSteps) -> RankSteps | None:
    if len(run.ranks) >= _MOST_RANKS:
        return None
    run.ranks.append(rank)
    return rank
