"""The steps of training runs as their logs tell them: plain columns, for a million of them; and out of baselines of tests.

MindSpeed-LLM and MindSpeed-MM keep expected figures for their tests in JSON files: ``tests/pipeline/.../baseline/*.json`` has
``time info``, ``lm loss``, ``throughput``, ``memo info``; MindSpeed-MM's ``baseline_results`` have ``time``, ``loss``, ``memo info``.
Times are milliseconds, memory MiB.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from ms_tune.errors import TraceError
from ms_tune.readers.reading import read_json
from ms_tune.readers.step_lines import NOT_LOGGED, Form, StepLine
from ms_tune.records import Record
from ms_tune.text import msg
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class LoggedMemory:
    """What a rank says about its memory (Megatron's ``report_memory``), in bytes, and after how many steps; 0 is not told."""

    rank: int
    allocated: int
    max_allocated: int
    reserved: int
    max_reserved: int
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that happened between two steps: ``checkpoint`` or ``evaluation``; the step before it, and its line."""

    kind: str
    step: int
    line: int


@dataclass(frozen=True, slots=True)
class RankSteps:
    """The steps of one rank in one run, as columns of one length; what is not logged is NaN, or 0 for counts."""

    form: Form  # who printed them
    rank: int | None  # its number, where something tells it
    number: array[int] = field(default_factory=lambda: array("q"))  # counters, rising; epochs are added up
    line: array[int] = field(default_factory=lambda: array("q"))  # lines in the file, from 1
    seconds: array[float] = field(default_factory=lambda: array("d"))  # how long each took
    loss: array[float] = field(default_factory=lambda: array("d"))  # as printed
    norm: array[float] = field(default_factory=lambda: array("d"))  # norms of gradients
    tflops: array[float] = field(default_factory=lambda: array("d"))  # TFLOP/s of a card, by the framework's formula
    counted: array[float] = field(default_factory=lambda: array("d"))  # by counting, without what is recomputed
    hardware: array[float] = field(default_factory=lambda: array("d"))  # the same with it
    rate: array[float] = field(default_factory=lambda: array("d"))  # samples a second and card
    batch: array[int] = field(default_factory=lambda: array("q"))  # samples of a step, of all cards
    tokens: array[int] = field(default_factory=lambda: array("q"))  # tokens consumed so far
    peak: array[float] = field(default_factory=lambda: array("d"))  # most that was allocated so far, in the log's "GB"

    def __len__(self) -> int:
        return len(self.number)

    @property
    def whole_ms(self) -> bool:
        """Whether its times are printed as whole milliseconds."""
        return self.form in {Form.STATIC, Form.DYNAMIC}

    def extend(self, columns: Mapping[str, Sequence[float]], count: int) -> None:
        """Take as many more steps; of what no column tells nothing is known."""
        for name in COLUMNS:
            column = getattr(self, name)
            nothing = 0 if column.typecode == "q" else NOT_LOGGED
            column.extend(columns[name] if name in columns else array(column.typecode, [nothing]) * count)

    def add(self, step: StepLine, number: int, line: int) -> None:
        """Take one more step."""
        self.number.append(number)
        self.line.append(line)
        self.seconds.append(step.seconds)
        self.loss.append(step.loss)
        self.norm.append(step.norm)
        self.tflops.append(step.tflops)
        self.counted.append(step.counted)
        self.hardware.append(step.hardware)
        self.rate.append(NOT_LOGGED)
        self.batch.append(step.batch)
        self.tokens.append(step.tokens)
        self.peak.append(step.allocated)


COLUMNS = tuple(one.name for one in fields(RankSteps) if one.name not in {"form", "rank"})


@dataclass(frozen=True, slots=True)
class LoggedTraining:
    """One run in a log."""

    # The steps of each rank that writes into the log; the one that wrote first comes first.
    ranks: list[RankSteps] = field(default_factory=list)
    total: int = 0  # steps of the job or of an epoch, as the lines say; 0 where they do not
    # It begins with a step that the run before it had last: two runs were mixed, not one put behind the other.
    repeated: bool = False
    # What ranks say about their memory; the last word of each.
    memory: dict[int, LoggedMemory] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)  # what happened between the steps


class TrainingLog(Record):
    """What a training log holds."""

    path: Path  # the file
    rank: int | None  # the rank that wrote it, if its name says so
    runs: tuple[LoggedTraining, ...]
    damaged: tuple[int, ...] = ()  # lines with a step of which not enough is left, the first ones
    damaged_count: int = 0  # how many there are
    dropped: int = 0  # steps beyond the most that are kept
    orphans: int = 0  # lines with a rate and no step before them
    cut_off: bool = False  # the file ends in the middle of a line


_MAX_BYTES = 64 * MIB
_MOST_MS, _MOST_MIB = 1e10, 1e9


def read_baseline(path: Path) -> LoggedTraining:
    """Read such a file. Raises TraceError: it is no such file, or one of its times is none."""
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
    losses = _read_list(data, len(times), "lm loss", "loss")
    rates = _read_list(data, len(times), "throughput")
    steps = RankSteps(Form.BASELINE, None)
    for number, value in enumerate(times, start=1):
        line = StepLine(Form.BASELINE, number, 0, 0, value / 1000, loss=losses[number - 1], tflops=rates[number - 1])
        steps.add(line, number, 0)
    return LoggedTraining([steps], memory=_read_memory(data.get("memo info")))


def _read_list(data: dict[str, object], length: int, *names: str) -> list[float]:
    # Some files have losses of fewer steps than times.
    values = next((found for name in names if isinstance(found := data.get(name), list)), [])
    numbers = [_parse_number(value) for value in values[:length]]
    return [*numbers, *[NOT_LOGGED] * (length - len(numbers))]


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


def _parse_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NOT_LOGGED
    try:
        number = float(value)
    except OverflowError:
        return NOT_LOGGED
    return number if math.isfinite(number) else NOT_LOGGED
