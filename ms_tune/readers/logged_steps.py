"""Define the steps of a training log: runs, their ranks, and the events between the steps, as plain columns.

A million steps of a rank need some tens of megabytes: beyond a limit every second one is kept, and what went wrong is
counted before. The baselines of MindSpeed-LLM's and -MM's tests (JSON) have the same columns.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from operator import sub, truediv
from pathlib import Path
from statistics import median
from typing import Any

from ms_tune.errors import TraceError
from ms_tune.readers.lines import read_json
from ms_tune.readers.logged_settings import LoggedSettings
from ms_tune.readers.step_lines import MOST_SECONDS, StepForm, table_form
from ms_tune.records import Record
from ms_tune.text import msg
from ms_tune.units import GIB, MIB

NOT_LOGGED = math.nan
_SOME = 100  # steps at both ends that show whether losses are printed
BASELINE = table_form("baseline", ascend=True)


@dataclass(frozen=True, slots=True)
class LoggedMemory:
    """Memory that a rank reports (Megatron's ``report_memory``), in bytes, and after how many steps; 0 if unknown."""

    rank: int
    allocated: int
    max_allocated: int
    reserved: int
    max_reserved: int
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Remark:
    """An event between two steps, such as ``checkpoint``: the step before it, and its line."""

    kind: str
    step: int
    line: int


@dataclass(slots=True)
class Trouble:
    """Steps that went wrong in one way."""

    count: int = 0
    step: int = 0  # the first one's counter
    line: int = 0  # its line
    last: int = 0  # the last one's counter
    lasting: int = 0  # steps at the end of the run that went wrong, without a good one between them


@dataclass(slots=True)
class RankSteps:
    """The steps of one rank in one run, as columns of one length; NaN, or 0 for counts, if not logged."""

    form: StepForm  # the trainer that printed them
    rank: int | None  # its number, if known
    total: int = 0  # steps of the job or of an epoch; 0 if unknown
    every: int = 1  # one of so many steps is kept
    rise: int = 0  # usual increase of the counter before any was left out; 0 if none was
    seen: int = 0  # steps that were logged
    last: int = 0  # counter of the last one
    clock: float = NOT_LOGGED  # of the last one, in seconds since some moment
    skipped_sum: int = 0  # steps skipped so far
    troubles: dict[str, Trouble] = field(default_factory=dict)  # by name: `nan`, `inf`, `norm`, `skipped`, `overflow`
    number: array[int] = field(default_factory=lambda: array("q"))  # step counters, increasing over all epochs
    line: array[int] = field(default_factory=lambda: array("q"))  # lines in the file, from 1
    seconds: array[float] = field(default_factory=lambda: array("d"))  # durations
    loss: array[float] = field(default_factory=lambda: array("d"))  # as printed
    norm: array[float] = field(default_factory=lambda: array("d"))  # norms of gradients
    tflops: array[float] = field(default_factory=lambda: array("d"))  # TFLOP/s per card, by the framework's formula
    counted: array[float] = field(default_factory=lambda: array("d"))  # from the operations that ran
    hardware: array[float] = field(default_factory=lambda: array("d"))  # the same including recomputation
    mfu: array[float] = field(default_factory=lambda: array("d"))  # share of the peak, by the framework's formula
    rate: array[float] = field(default_factory=lambda: array("d"))  # samples/s per card
    samples: array[float] = field(default_factory=lambda: array("d"))  # samples/s over all cards
    token_rate: array[float] = field(default_factory=lambda: array("d"))  # tokens/s per card
    batch: array[int] = field(default_factory=lambda: array("q"))  # samples per step, over all cards
    tokens: array[int] = field(default_factory=lambda: array("q"))  # tokens consumed so far
    allocated: array[float] = field(default_factory=lambda: array("d"))  # most memory allocated, in the log's "GB"
    reserved: array[float] = field(default_factory=lambda: array("d"))  # most memory reserved by the pool, likewise

    def __len__(self) -> int:
        return len(self.number)

    @property
    def memory(self) -> tuple[LoggedMemory, ...]:
        """Return the largest figures of the steps; empty without any. Trainers write GB for 2^30 bytes."""
        allocated, reserved = (
            round(max((size for size in column if size > 0), default=0.0) * GIB)
            for column in (self.allocated, self.reserved)
        )
        return (LoggedMemory(self.rank or 0, 0, allocated, 0, reserved),) if allocated or reserved else ()

    @property
    def steps_per_line(self) -> int:
        """Return the number of steps per line: the usual increase of the counter."""
        rises = [] if self.rise else [*map(sub, self.number[1:], self.number)]
        return self.rise or (max(int(median(rises)), 1) if rises else 1)

    def extend(self, columns: Mapping[str, Sequence[float]], count: int, *, dense: bool = False) -> None:
        """Append ``count`` steps, ``dense`` ones without leaving any out; columns that are not given are unknown."""
        if not count:
            return
        columns = self._follow_clock(columns)
        self._watch(columns, count)
        first, every = (0, 1) if dense else (-self.seen % self.every, self.every)
        self.seen += count
        self.last = int(columns["number"][-1])
        kept = len(range(first, count, every))
        for name in COLUMNS:
            column = getattr(self, name)
            if name in columns:
                # Of a list, an array is made faster than extended.
                column.extend(array(column.typecode, columns[name][first::every]))
            else:
                column.extend(array(column.typecode, [0 if column.typecode == "q" else NOT_LOGGED]) * kept)

    def complete(self, columns: Mapping[str, Sequence[float]]) -> bool:
        """Add the values of another line to the last step; return False if the step has one of them already."""
        if not self.number or self.number[-1] != self.last:
            self._watch(columns, 1)
            return self.every > 1  # the last step is one of those that are left out
        columns = self._follow_clock(columns) if math.isnan(self.seconds[-1]) else columns
        new = [name for name in COLUMNS if name in columns and name not in ("number", "line")]
        if any(getattr(self, name)[-1] == getattr(self, name)[-1] != 0 for name in new):
            return False
        for name in new:
            getattr(self, name)[-1] = columns[name][0]
        self._watch(columns, 1)
        return True

    def thin(self) -> None:
        """Keep every second step only."""
        self.rise, self.every = self.steps_per_line, self.every * 2
        for name in COLUMNS:
            setattr(self, name, getattr(self, name)[::2])

    def _follow_clock(self, columns: Mapping[str, Sequence[float]]) -> Mapping[str, Sequence[float]]:
        # The time of a step is the difference of two readings of the clock, divided by the steps between them.
        clock = columns.get("clock")
        if clock is None or "seconds" in columns:
            return columns
        number = columns["number"]
        rises = [*map(sub, number, [self.last, *number[:-1]])]
        spans = [*map(sub, clock, [self.clock, *clock[:-1]])]
        self.clock = clock[-1]
        seconds = [
            each if rise > 0 and 0 <= each < MOST_SECONDS else NOT_LOGGED
            for rise, each in zip(rises, map(truediv, spans, [rise or 1 for rise in rises]), strict=True)
        ]
        return {**columns, "seconds": seconds}

    def _watch(self, columns: Mapping[str, Sequence[float]], count: int) -> None:
        for name, column in (("loss", columns.get("loss")), ("norm", columns.get("norm"))):
            if column is None or all(map(math.isfinite, column)):
                if column is not None:
                    self._end_trouble(*(("nan", "inf") if name == "loss" else ("norm",)))
                continue
            if name == "norm":
                self._note("norm", columns, [not math.isfinite(value) for value in column])
            else:
                self._note("nan", columns, [math.isnan(value) for value in column])
                self._note("inf", columns, [math.isinf(value) for value in column])
        if sums := columns.get("skipped_sum"):
            columns = {**columns, "skipped": [*map(sub, sums, [self.skipped_sum, *sums[:-1]])]}
            self.skipped_sum = int(sums[-1])
        for name in ("overflow", "skipped"):
            if name in columns:
                self._note(name, columns, columns[name])
        if "skipped" in columns and "loss" not in columns:
            # Megatron prints only losses above 0, so that a NaN is a loss that is missing; a skipped step has none.
            missing = int(any(map(math.isfinite, (*self.loss[:_SOME], *self.loss[-_SOME:]))))
            bad = columns.get("nan", [0] * count)
            self._note(
                "nan", columns, [nan or missing * (not skip) for nan, skip in zip(bad, columns["skipped"], strict=True)]
            )

    def _note(self, name: str, columns: Mapping[str, Sequence[float]], counts: Sequence[float]) -> None:
        if not any(counts):
            self._end_trouble(name)
            return
        trouble = self.troubles.setdefault(name, Trouble())
        for place, many in enumerate(counts):
            if many:
                if not trouble.count:
                    trouble.step, trouble.line = int(columns["number"][place]), int(columns["line"][place])
                trouble.count += int(many)
                trouble.last = int(columns["number"][place])
                trouble.lasting += 1
            else:
                trouble.lasting = 0

    def _end_trouble(self, *names: str) -> None:
        for name in names:
            if name in self.troubles:
                self.troubles[name].lasting = 0


_STATE = {"form", "rank", "total", "every", "rise", "seen", "last", "clock", "skipped_sum", "troubles"}
COLUMNS = tuple(one.name for one in fields(RankSteps) if one.name not in _STATE)


@dataclass(slots=True)
class LoggedTraining:
    """One run in a log."""

    # The steps of each rank that writes into the log, in the order of their first lines.
    ranks: list[RankSteps] = field(default_factory=list)
    total: int = 0  # steps of the job or of an epoch; 0 if unknown
    # It begins with the last step of the run before it: the lines of two runs are mixed, not consecutive.
    repeated: bool = False
    # The last memory report of each rank.
    memory: dict[int, LoggedMemory] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)  # events between the steps
    gpu: bool = False  # whether its log speaks of CUDA or NCCL, and not of NPUs
    samples: float = NOT_LOGGED  # samples/s of the whole run, over all cards, as its last line reports
    speed: float = NOT_LOGGED  # steps/s of the whole run, likewise
    settings: LoggedSettings = LoggedSettings()  # noqa: RUF009 - immutable


class TrainingLog(Record):
    """The contents of a training log."""

    path: Path  # the file
    rank: int | None  # the rank that wrote it, if its name shows it
    runs: tuple[LoggedTraining, ...]
    damaged: tuple[int, ...] = ()  # the first lines with a step that has too few values
    damaged_count: int = 0  # number of such lines
    dropped: int = 0  # steps above the maximum number, which are not stored
    orphans: int = 0  # lines with a rate but without a step before them
    cut_off: bool = False  # the file ends in the middle of a line


_MAX_BYTES = 64 * MIB
_MOST_MS, _MOST_MIB = 1e10, 1e9


def read_baseline(path: Path) -> LoggedTraining:
    """Read a baseline. Raises TraceError: the file is not a baseline, or one of its times is invalid.

    MindSpeed-LLM's ``tests/pipeline/.../baseline/*.json`` have ``time info``, ``lm loss``, ``throughput``, ``memo
    info``; MindSpeed-MM's ``baseline_results`` have ``time``, ``loss``, ``memo info``. Times are in ms, memory in MiB.
    """
    content = read_json(path, _MAX_BYTES, msg("trace.steps.baseline.long", limit=_MAX_BYTES // MIB), "trace.steps.json")
    data = content if isinstance(content, dict) else {}
    name = "time info" if "time info" in data else "time"
    given = data.get(name)
    if not isinstance(given, list) or not given:
        raise TraceError(msg("trace.steps.baseline"), msg("trace.steps.none.hint"), path=path)
    times = [_parse_number(value) for value in given]
    for place, value in enumerate(times, start=1):
        if not 0 < value < _MOST_MS:
            raise TraceError(msg("trace.steps.baseline.time", list=name, place=place), path=path)
    losses = [_parse_number(one, None) for one in _find_list(data, "lm loss", "loss")[: len(times)]]
    rates = [_parse_number(one) for one in _find_list(data, "throughput")[: len(times)]]
    steps = RankSteps(BASELINE, None)
    columns = {"number": range(1, len(times) + 1), "line": [0] * len(times), "seconds": [one / 1000 for one in times]}
    columns["tflops"] = [*rates, *[NOT_LOGGED] * (len(times) - len(rates))]
    # Some files have fewer losses than times, and one that is not a number is missing, not NaN.
    known = [place < len(losses) and isinstance(losses[place], float) for place in range(len(times))]
    for is_known, group in groupby(range(len(times)), known.__getitem__):
        places = list(group)
        part = slice(places[0], places[-1] + 1)
        cut = {column: values[part] for column, values in columns.items()}
        steps.extend(cut | ({"loss": losses[part]} if is_known else {}), len(cut["line"]))
    return LoggedTraining([steps], memory=_read_memory(data.get("memo info")))


def _find_list(data: dict[str, object], *names: str) -> list[object]:
    return next((found for name in names if isinstance(found := data.get(name), list)), [])


def _read_memory(rows: object) -> dict[int, LoggedMemory]:
    found = {}
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict) or not isinstance(row.get("rank"), int):
            continue
        sizes = [_parse_number(row.get(name)) for name in ("allocated memory", "max allocated memory")]
        if all(0 <= size < _MOST_MIB for size in sizes):
            allocated, most = (round(size * MIB) for size in sizes)
            found[row["rank"]] = LoggedMemory(row["rank"], allocated, most, 0, 0)
    return found


def _parse_number(value: object, otherwise: Any = NOT_LOGGED) -> Any:  # noqa: ANN401 - a float, or the value for none
    if isinstance(value, bool) or not isinstance(value, int | float):
        return otherwise
    try:
        return float(value)
    except OverflowError:
        return otherwise
