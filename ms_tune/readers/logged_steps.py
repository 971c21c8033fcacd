"""Parse the steps in the lines of a training log, in the four formats that the frameworks print.

* MindFormers' static graph, ``MFLossMonitor`` (mindformers/core/callback/callback.py, 1.6 to 2.1): ``{ Epoch:[..],
  step:[..], loss: .., per_step_time: Nms, .., train_throughput_per_npu: xT``, and ``.. samples/s/p ..`` in the next line.
* Its dynamic graph (mindformers/pynative/callback/loss_callback.py, 1.9 to 2.1): ``{ step:[..], .., throughput: xT }``.
* MindSpeed-Core-MS r0.1.0 (mindformers/experimental/.../training.py): ``Epoch: e, Step: s, Loss: .., Time: x ms``.
* Megatron (megatron/training/training.py, core 0.6 to 0.12; MindSpeed's tflops_calculate): ``iteration n/ N | key: value
  | ..``, also printed by MindSpeed-Core-MS since r0.2, MindSpeed-LLM and MindSpeed-MM.

If an average follows a value (``123.4/125.0``, ``496.3 (avg 496.1)``, as in Primus' Megatron), the value counts. The
result is plain columns, for a million steps; so are the baselines of MindSpeed-LLM's and -MM's tests.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from ms_tune.errors import TraceError
from ms_tune.readers.lines import RANK_PREFIX, read_json
from ms_tune.records import Record
from ms_tune.text import msg
from ms_tune.units import MIB

MOST_SECONDS = 1e7
MOST_STEPS = 10**12
MOST_COUNTED = {"batch": 10**9, "tokens": 10**17}

_N = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,4})?"
_BRACE = re.compile(r"\{\s{0,4}(?=Epoch:|step:)")
_EPOCH = re.compile(r"Epoch:\s{0,4}\[\s{0,20}(\d{1,12})\s{0,20}/\s{0,20}\d{1,12}\]")
_STEP = re.compile(r"step:\s{0,4}\[\s{0,20}(\d{1,15})\s{0,20}/\s{0,20}(\d{1,15})\]")
_TIME = re.compile(rf"per_step_time:\s{{0,20}}({_N})\s{{0,4}}ms")
_LOSS = re.compile(rf"(?<![\w-])loss:\s{{0,4}}\[?\s{{0,20}}({_N}|nan|-?inf)(?=[,/\] }}])", re.IGNORECASE)
_NORM = re.compile(rf"(?:global|grad)_norm:\s{{0,4}}\[?\s{{0,20}}({_N})(?=[,\] }}])")
_TFLOPS = re.compile(rf"(?:train_throughput_per_npu|(?<![\w-])throughput):\s{{0,20}}({_N})T")
_BATCH = re.compile(r"global_batch_size:\s{0,20}(\d{1,15})")
_OLD = re.compile(
    rf"Epoch: (\d{{1,12}}), Step: (\d{{1,15}}), Loss: (\S{{1,60}}), .{{0,400}}\bTime: ({_N}) ms", re.IGNORECASE
)
_ITERATION = re.compile(r"iteration\s{1,20}(\d{1,15})\s{0,20}/\s{0,20}(\d{1,15})\s{0,4}\|")
_WITH_AVERAGE = re.compile(rf"({_N})(?=/| \()")
_SAMPLES = re.compile(rf"({_N}) samples/s/p")
_PATTERNS = {
    "number": _STEP,
    "time": _TIME,
    "epoch": _EPOCH,
    "loss": _LOSS,
    "norm": _NORM,
    "tflops": _TFLOPS,
    "batch": _BATCH,
}
# Plain numbers: not NaN, infinity or a pair of values.
_WHOLE = re.compile(r"[0-9]{1,19}")
_PLAIN = re.compile(r"[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,4})?")
_SIGNED = re.compile("-?" + _PLAIN.pattern)
_NEEDED = {"number", "time"}
_COUNTS = {"number", "total", "epoch", "batch", "tokens", "rank"}
# Meaning of the keys in Megatron's lines; the first that is present counts.
_KEYS = {
    "elapsed time per iteration (ms)": "time",
    "throughput per GPU (TFLOP/s/GPU)": "tflops",
    "compute per GPU (TFLOP/s/GPU)": "tflops",
    "theoretical throughput per NPU (TFLOP/s/NPU)": "tflops",
    "TFLOPs": "tflops",  # Megatron-DeepSpeed
    "actual throughput per NPU (TFLOP/s/NPU)": "counted",
    "actual throughput per NPU with recompute (TFLOP/s/NPU)": "hardware",
    "global batch size": "batch",
    "gloabl batch size": "batch",  # the spelling of old releases
    "consumed tokens": "tokens",
    "lm loss": "loss",
    "loss": "loss",
    "total loss": "loss",
    "grad norm": "norm",
    "max_memory_allocated(GB)": "allocated",
    "max_memory_reserved(GB)": "reserved",
}
NOT_LOGGED = math.nan
FLOATS = ("norm", "tflops", "counted", "hardware", "allocated", "reserved")


class Form(str, Enum):
    """The framework that prints the lines."""

    STATIC = "mindformers"
    DYNAMIC = "mindformers-pynative"
    MINDSPEED = "mindspeed-ms"
    MEGATRON = "megatron"
    BASELINE = "baseline"  # a JSON file of lists


class StepLine(NamedTuple):
    """A step as one line shows it; values that are not logged are NaN, or 0 for counts."""

    form: Form  # the framework
    number: int  # the step's counter
    total: int  # steps of an epoch (static graph) or of the job; 0 if unknown
    epoch: int  # from 1 (from 0 in MindSpeed's form); 0 if unknown
    seconds: float  # duration, or the average of the steps since the last line
    loss: float = NOT_LOGGED  # as printed
    norm: float = NOT_LOGGED  # norm of the gradients
    tflops: float = NOT_LOGGED  # TFLOP/s per card, by the framework's formula
    counted: float = NOT_LOGGED  # the same from the operations that ran, without recomputation
    hardware: float = NOT_LOGGED  # the same with recomputation
    batch: int = 0  # samples per step, over all cards
    tokens: int = 0  # tokens consumed so far
    allocated: float = NOT_LOGGED  # most memory allocated so far, in units of 10^9 or 2^30 bytes (frameworks differ)
    reserved: float = NOT_LOGGED  # most memory reserved by the pool so far, likewise


def parse_steps(line: str, *, whole: bool = True) -> Iterator[StepLine | None]:
    """Yield the steps in a line: several if lines ran into each other, None for a damaged one.

    In a line that is not ``whole``, such as the last of a log that is being written, the last figure may be cut off.
    """
    for form, spans in _locate_steps(line, whole=whole):
        yield make_step(form, {name: line[start:end] for name, (start, end) in spans.items()})


def parse_rate(line: str) -> float:
    """Return samples/s per card from MindFormers' second line; NaN if the line has none."""
    found = _SAMPLES.search(line)
    return _parse_positive(found[1]) if found else NOT_LOGGED


class StepLineKind(NamedTuple):
    """The kind of a line: lines of one kind have the same values."""

    form: Form | None  # the framework; None for MindFormers' second line
    names: tuple[str, ...]  # the values in the line: keys of `make_step`, and `rank`; or only `rate`


def learn_line_layout(line: bytes) -> tuple[StepLineKind, Callable[[bytes], tuple[bytes, ...]]] | None:
    """Return the kind of a line, and a function that extracts its values, also from lines that differ only in digits.

    None if the line does not have exactly one step or one rate, or if a value is not a plain number.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return None
    prefix, rate = RANK_PREFIX.match(text), _SAMPLES.search(text)
    begin = prefix.end() if prefix else 0
    steps = list(_locate_steps(text[begin:]))
    if "\x1b" in text or len(steps) + (rate is not None) != 1:
        return None
    form, spans = steps[0] if steps else (None, {"rate": (0, 0)})
    places = {name: (begin + start, begin + end) for name, (start, end) in spans.items()}
    if rate is not None:
        places = {"rate": rate.span(1)}
    elif prefix is not None:
        places["rank"] = next(span for span in map(prefix.span, range(1, RANK_PREFIX.groups + 1)) if span[0] >= 0)
    known = {}
    for name, (start, end) in places.items():
        value = text[start:end]
        if (_WHOLE if name in _COUNTS else _SIGNED if name == "loss" else _PLAIN).fullmatch(value):
            known[name] = slice(len(text[:start].encode()), len(text[:end].encode()))
        elif any(mark.isdigit() for mark in value) or not math.isnan(_parse_printed(value)) or name in _NEEDED:
            return None
    if not known.keys() >= _NEEDED and "rate" not in known:
        return None
    names = tuple(sorted(known))
    # At least two, as itemgetter does not return a tuple otherwise.
    return StepLineKind(form, names), itemgetter(
        *(known[name] for name in names), *([slice(0)] if len(names) == 1 else [])
    )


def _locate_steps(line: str, *, whole: bool = True) -> Iterator[tuple[Form, Mapping[str, tuple[int, int]]]]:
    # Yield the position of each value of each step: its key of `make_step`, with the start and end in the line.
    if "per_step_time" in line:
        for start, end in _split_at_heads(line, _BRACE):
            yield _locate_mindformers(line, start, end)
    elif "elapsed time per iteration" in line:
        for start, end in _split_at_heads(line, _ITERATION):
            yield Form.MEGATRON, _locate_megatron(line, start, end, whole=whole and end == len(line))
    elif found := _OLD.search(line):
        loss = found[3]
        start = found.start(3) + len(loss) - len(loss.lstrip("[],()"))
        spans = {name: found.span(group) for name, group in (("epoch", 1), ("number", 2), ("time", 4))}
        yield Form.MINDSPEED, {**spans, "loss": (start, start + len(loss.strip("[],()")))}


def _split_at_heads(line: str, head: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    # A line without a head is one part, so it counts as damaged.
    starts = [match.start() for match in head.finditer(line)]
    return zip(starts or [0], [*starts[1:], len(line)], strict=True)


def _locate_mindformers(line: str, start: int, end: int) -> tuple[Form, Mapping[str, tuple[int, int]]]:
    spans: dict[str, tuple[int, int]] = {}
    for name, pattern in _PATTERNS.items():
        if found := pattern.search(line, start, end):
            spans[name] = found.span(1)
            if name == "number":
                spans["total"] = found.span(2)
    return Form.STATIC if "epoch" in spans else Form.DYNAMIC, spans


def _locate_megatron(line: str, start: int, end: int, *, whole: bool) -> Mapping[str, tuple[int, int]]:
    head = _ITERATION.match(line, start, end)
    if head is None:
        return {}
    spans = {"number": head.span(1), "total": head.span(2)}
    at = head.end()
    parts = line[at:end].split("|")
    # The value after the last bar may be cut off if the line has no end.
    for part in parts if whole else parts[:-1]:
        key, _, value = part.partition(":")
        name = _KEYS.get(key.strip())
        if name is not None and name not in spans:
            begin = at + len(part) - len(value.lstrip())
            spans[name] = (begin, begin + len(value.strip()))
        at += len(part) + 1
    return spans


def make_step(form: Form, told: Mapping[str, str]) -> StepLine | None:
    """Return the step from printed values (``time`` in ms); None if too few are left or a value is impossible."""
    if not told.keys() >= _NEEDED or (form is not Form.MINDSPEED and "total" not in told):
        return None
    number, total, epoch = (int(told.get(name, 0)) for name in ("number", "total", "epoch"))
    seconds = _parse_positive(told["time"]) / 1000
    if not 0 < seconds < MOST_SECONDS or max(number, total, epoch * max(total, 1)) > MOST_STEPS:
        return None
    rest = {name: _parse_positive(told[name]) for name in FLOATS if name in told}
    loss = _parse_printed(told.get("loss", ""))
    batch, tokens = (_parse_count(told.get(name, ""), most) for name, most in MOST_COUNTED.items())
    return StepLine(form, number, total, epoch, seconds, loss, batch=batch, tokens=tokens, **rest)


def _parse_printed(text: str) -> float:
    if not text:
        return NOT_LOGGED
    try:
        return float(text)
    except ValueError:
        found = _WITH_AVERAGE.match(text)
        return float(found[1]) if found else NOT_LOGGED


def _parse_positive(text: str) -> float:
    number = _parse_printed(text)
    return number if 0 <= number < math.inf else NOT_LOGGED


def _parse_count(text: str, most: int) -> int:
    number = int(text) if text.isdecimal() and len(text) < 20 else 0  # noqa: PLR2004 - digits
    return number if number <= most else 0


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
    """An event between two steps, ``checkpoint`` or ``evaluation``: the step before it, and its line."""

    kind: str
    step: int
    line: int


@dataclass(frozen=True, slots=True)
class RankSteps:
    """The steps of one rank in one run, as columns of one length; NaN, or 0 for counts, if not logged."""

    form: Form  # the framework that printed them
    rank: int | None  # its number, if known
    number: array[int] = field(default_factory=lambda: array("q"))  # step counters, increasing over all epochs
    line: array[int] = field(default_factory=lambda: array("q"))  # lines in the file, from 1
    seconds: array[float] = field(default_factory=lambda: array("d"))  # durations
    loss: array[float] = field(default_factory=lambda: array("d"))  # as printed
    norm: array[float] = field(default_factory=lambda: array("d"))  # norms of gradients
    tflops: array[float] = field(default_factory=lambda: array("d"))  # TFLOP/s per card, by the framework's formula
    counted: array[float] = field(default_factory=lambda: array("d"))  # from the operations that ran
    hardware: array[float] = field(default_factory=lambda: array("d"))  # the same including recomputation
    rate: array[float] = field(default_factory=lambda: array("d"))  # samples/s per card
    batch: array[int] = field(default_factory=lambda: array("q"))  # samples per step, over all cards
    tokens: array[int] = field(default_factory=lambda: array("q"))  # tokens consumed so far
    peak: array[float] = field(default_factory=lambda: array("d"))  # most memory allocated so far, in the log's "GB"

    def __len__(self) -> int:
        return len(self.number)

    @property
    def whole_ms(self) -> bool:
        """Return whether its times are printed in whole milliseconds."""
        return self.form in {Form.STATIC, Form.DYNAMIC}

    def extend(self, columns: Mapping[str, Sequence[float]], count: int) -> None:
        """Append ``count`` steps; columns that are not given are unknown."""
        for name in COLUMNS:
            column = getattr(self, name)
            nothing = 0 if column.typecode == "q" else NOT_LOGGED
            column.extend(columns[name] if name in columns else array(column.typecode, [nothing]) * count)

    def add(self, step: StepLine, number: int, line: int) -> None:
        """Append a step."""
        values = {**step._asdict(), "number": number, "line": line, "rate": NOT_LOGGED, "peak": step.allocated}
        for name in COLUMNS:
            getattr(self, name).append(values[name])


COLUMNS = tuple(one.name for one in fields(RankSteps) if one.name not in {"form", "rank"})


@dataclass(frozen=True, slots=True)
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
    losses = _read_list(data, len(times), "lm loss", "loss")
    rates = _read_list(data, len(times), "throughput")
    steps = RankSteps(Form.BASELINE, None)
    for number, value in enumerate(times, start=1):
        line = StepLine(Form.BASELINE, number, 0, 0, value / 1000, loss=losses[number - 1], tflops=rates[number - 1])
        steps.add(line, number, 0)
    return LoggedTraining([steps], memory=_read_memory(data.get("memo info")))


def _read_list(data: dict[str, object], length: int, *names: str) -> list[float]:
    # Some files have fewer losses than times.
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
