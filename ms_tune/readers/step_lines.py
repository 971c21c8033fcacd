"""Find the steps in the lines of training logs, by the entries of ``facts/data/step_lines.json``: one for each trainer.

An entry has regular expressions, units and the source of the format. Lines that differ only in digits have their values
at the same places, so that a line is searched once for all its likes (`learn_line_layout`). Values become columns, with
one unit: seconds, TFLOP/s, GiB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache, reduce
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from ms_tune.errors import UsageError
from ms_tune.facts.query import load
from ms_tune.readers.lines import locate_prefix
from ms_tune.records import Record
from ms_tune.text import msg

MOST_SECONDS = 1e7
MOST_STEPS = 10**12
_LONGEST_RECORD = 64 * 1024  # bytes
_MOST_COUNTED = {"batch": 10**9, "tokens": 10**17}
_SCALED = {"milliseconds": ("time", 0.001), "seconds": ("time", 1.0)}  # values that are called otherwise in the end

_NUMBER = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,4})?"
_KINDS = {
    "I": r"(?P<{name}>\d{{1,19}})",
    "C": r"(?P<{name}>\d[\d,]{{0,20}}(?:\.\d{{1,9}})?(?:[KM]\b)?)",
    "N": rf"(?:np\.\w{{{{1,9}}}}\()?(?P<{{name}}>{_NUMBER.replace('{', '{{').replace('}', '}}')})",
    "F": rf"(?:np\.\w{{{{1,9}}}}\()?(?P<{{name}}>{_NUMBER.replace('{', '{{').replace('}', '}}')}|[-+]?(?i:nan|inf(?:inity)?))(?![\w.])",
    "T": r"(?P<{name}>(?:\d{{1,4}} days?, )?\d{{1,4}}(?::\d\d){{1,2}}|(?:\d{{1,5}}[dhms] ?){{1,4}})",
    "S": r"(?P<{name}>\d{{4}}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{{1,6}})?)",
    "B": r"(?P<{name}>True|False)",
}
_PLACEHOLDER = re.compile(r"\{([a-z_]{1,30}):([A-Z])\}")
_CLOCK_PARTS = re.compile(r"(\d+)([dhms])")
_SIXTH_DIGIT, _SLIP = 5e-7, 0.01  # half of the sixth digit; seconds between reading the clock and printing it
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
WHOLE = {"number", "total", "epoch", "batch", "tokens", "skipped", "skipped_sum", "nan", "rank"}
_SIGNED = {"loss"}
_COUNTERS = {"number", "total", "epoch", "stamp"}  # values that do not make a step


class StepForm(Record):
    """The lines of one trainer; see the file's comment for the meaning of each field."""

    name: str
    words: tuple[str, ...]
    head: re.Pattern[str]
    values: tuple[re.Pattern[str], ...] = ()
    scale: Mapping[str, float] = {}
    unit: float = 0.0001
    strict: bool = False
    needs: tuple[str, ...] = ()
    role: str = ""
    clock: str = ""
    first: int = 1
    ascend: bool = False
    redrawn: bool = False
    begin: str = ""
    record: re.Pattern[bytes] | None = None  # several lines that are read as one
    notes: tuple[str, ...] = ()

    @property
    def whole_ms(self) -> bool:
        """Return whether its times are printed in whole milliseconds."""
        return self.unit == 0.001  # noqa: PLR2004 - a millisecond


class LineKind(NamedTuple):
    """Lines of one form that contain the same set of values."""

    form: StepForm
    names: tuple[str, ...]  # `number`, `time` .., and `rank`, in alphabetical order


@cache
def step_forms(group: str = "forms") -> tuple[StepForm, ...]:
    """Return the forms of all known trainers, or the ``general`` ones, of any other."""
    return tuple(
        StepForm(
            **{key: tuple(value) if isinstance(value, list) else value for key, value in one.items() if key != "source"}
            | {
                "name": name,
                "head": _compile_pattern(one["head"]),
                "values": tuple(_compile_pattern(text) for text in one.get("values", ())),
                "record": re.compile(one["record"].encode()) if "record" in one else None,
            }
        )
        for name, one in load("step_lines")[group].items()
    )


def table_form(name: str, *, ascend: bool = False) -> StepForm:
    """Return a form without lines: of a table or of a file of lists."""
    return StepForm(name, (), re.compile("$^"), clock="stamp", ascend=ascend)


def _compile_pattern(text: str) -> re.Pattern[str]:
    return re.compile(_PLACEHOLDER.sub(lambda found: f"(?:{_KINDS[found[2]].format(name=found[1])})", text), re.ASCII)


# Names of the groups of a user's pattern, and the value of each.
_GROUPS = {"step": "number", "number": "number", "total": "total", "epoch": "epoch", "time": "seconds"} | {
    "time_s": "seconds",
    "time_ms": "milliseconds",
    "loss": "loss",
    "norm": "norm",
    "grad_norm": "norm",
    "tflops": "tflops",
    "tokens": "tokens",
    "batch": "batch",
    "tps": "token_rate",
    "stamp": "stamp",
}


def form_of_pattern(pattern: str) -> StepForm:
    """Return the form of a user's regular expression, whose groups are named ``step``, ``time_ms``, ``loss`` .."""
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise UsageError(msg("metrics.pattern.invalid", detail=str(error))) from None
    unknown = sorted(found.groupindex.keys() - _GROUPS)
    if (
        unknown
        or "step" not in found.groupindex
        or not found.groupindex.keys() & {"time", "time_s", "time_ms", "stamp", "loss"}
    ):
        raise UsageError(msg("metrics.pattern.groups", unknown=", ".join(unknown) or "-"), msg("metrics.pattern.hint"))
    names = "|".join(_GROUPS)
    text = re.sub(rf"\(\?P<({names})>", lambda group: f"(?P<{_GROUPS[group[1]]}>", pattern)
    return StepForm("pattern", (), re.compile(text), clock="stamp" if "stamp" in found.groupindex else "")


def join_records(blocks: Iterable[tuple[bytes, int]], forms: Sequence[StepForm]) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of a log with each step of several lines in one; lines keep their numbers."""
    records = [(form.record, form.begin.encode(), form.words[0].encode()) for form in forms if form.record]
    rest, number = b"", 1
    for body, first in chain(blocks, [(b"", 0)]):
        number = number if rest else first
        whole, rest = rest + body, b""
        for record, begin, word in records:
            if word in whole:
                start = whole.rfind(b"\n", 0, whole.rfind(begin) + 1) + 1
                if body and len(whole) - start < _LONGEST_RECORD:  # it may continue in the next block
                    whole, rest = whole[:start], whole[start:] + rest
                whole = record.sub(_join_lines, whole)
        if whole:
            yield whole, number
        number += whole.count(b"\n")


def _join_lines(record: re.Match[bytes]) -> bytes:
    return record[0].replace(b"\n", b" ") + b"\n" * record[0].count(b"\n")


def locate_steps(
    line: str, forms: Sequence[StepForm], *, whole: bool = True
) -> Iterator[tuple[StepForm, Mapping[str, tuple[int, int]]]]:
    """Yield the steps in a line: the place of each value; nothing located for a damaged one.

    In a line that is not ``whole``, such as the last of a log that is being written, the last figure may be cut off.
    """
    damaged = None
    for form in forms:
        if form.words and not any(word in line for word in form.words):
            continue
        heads = list(form.head.finditer(line))
        if heads:
            yield from _locate_values(line, form, heads, whole=whole)
            if form.role != "bar":  # a progress bar has no end of its line
                return
        damaged = damaged or (form if form.strict else None)
    if damaged is not None:
        yield damaged, {}


def _locate_values(
    line: str, form: StepForm, heads: Sequence[re.Match[str]], *, whole: bool
) -> Iterator[tuple[StepForm, Mapping[str, tuple[int, int]]]]:
    # Values may precede the only head of a line; several lines that ran into each other begin with their heads.
    begins = [head.start() if place else 0 for place, head in enumerate(heads)]
    for head, begin, end in zip(heads, begins, [*begins[1:], len(line)], strict=True):
        spans = {name: head.span(name) for name, value in head.groupdict().items() if value is not None}
        for pattern in form.values:
            found = pattern.search(line, begin, end)
            for name in pattern.groupindex if found else ():
                if found and found[name] is not None:
                    spans.setdefault(name, found.span(name))
        if not whole:
            spans = {name: span for name, span in spans.items() if span[1] < len(line)}
        timed = spans.keys() & {"time", "seconds", "milliseconds"}
        if form.strict and ("number" not in spans or not timed):
            yield form, {}
        elif all(name in spans for name in form.needs) and (form.role or spans.keys() - _COUNTERS):
            yield form, spans


def learn_line_layout(
    line: bytes, forms: Sequence[StepForm]
) -> tuple[LineKind, Callable[[bytes], tuple[bytes, ...]]] | None:
    """Return the kind of a line, and a function that extracts its values, also from lines that differ only in digits.

    None if the line does not have exactly one step.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return None
    if "\x1b" in text or "\r" in text:
        return None
    rank, _, begin = locate_prefix(text)
    steps = list(locate_steps(text[begin:], forms))
    if len(steps) != 1 or not steps[0][1]:
        return None
    form, spans = steps[0]
    places = {name: (begin + start, begin + end) for name, (start, end) in spans.items()}
    if rank is not None and not form.role:
        places["rank"] = rank
    if not text.isascii():
        places = {name: (len(text[:start].encode()), len(text[:end].encode())) for name, (start, end) in places.items()}
    names = tuple(sorted(places))
    slices = [slice(*places[name]) for name in names]
    # At least two, as itemgetter does not return a tuple otherwise.
    return LineKind(form, names), itemgetter(*slices, *([slice(0)] if len(names) == 1 else []))


Columns = dict[str, "list[int] | list[float]"]


def convert_rows(kind: LineKind, rows: Sequence[tuple[bytes, ...]]) -> tuple[Columns, set[int]]:
    """Return the values of some lines as columns, and the places of the rows with impossible values.

    Besides the columns of a `RankSteps` there are ``clock`` (seconds since some moment) where no time is printed, and
    ``skipped``, ``overflow`` and ``nan`` (iterations that went wrong).
    """
    texts = dict(zip(kind.names, zip(*rows, strict=True), strict=False))
    columns: Columns = {}
    for name, column in texts.items():
        if name in WHOLE:
            columns[name] = _whole_numbers(column)
        elif name in ("elapsed", "stamp"):
            columns[name] = [*map(_parse_clock if name == "elapsed" else _parse_stamp, column)]
        elif name == "overflow":
            columns[name] = [int(value == b"True") for value in column]
        else:
            target, scale = _SCALED.get(name, (name, kind.form.scale.get(name, 1)))
            columns[target] = _floats(column, scale, signed=name in _SIGNED or name == "norm")
    for name, most in _MOST_COUNTED.items():
        if name in columns and max(columns[name]) > most:
            columns[name] = [value if value <= most else 0 for value in columns[name]]
    bad = _find_impossible(columns)
    if "time" in columns:
        columns["seconds"] = columns.pop("time")
    elif kind.form.clock:
        _set_clock(kind.form, columns)
    return columns, bad


def _whole_numbers(column: Sequence[bytes]) -> list[int]:
    # Usually all values are the same.
    if column.count(column[0]) == len(column):
        return [int(column[0].replace(b",", b""))] * len(column)
    try:
        return [*map(int, column)]
    except ValueError:  # separators of thousands
        return [int(text.replace(b",", b"")) for text in column]


def _floats(column: Sequence[bytes], scale: float, *, signed: bool) -> list[float]:
    try:
        values = [*map(float, column)]
    except ValueError:  # separators and letters of thousands; an empty cell of a table
        letters = ((b",", b""), (b"K", b"e3"), (b"M", b"e6"))
        values = [float(reduce(lambda rest, pair: rest.replace(*pair), letters, text) or b"nan") for text in column]
    if scale != 1:
        values = [value * scale for value in values]
    if not signed and not (min(values) >= 0 and max(values) < math.inf):
        values = [value if 0 <= value < math.inf else math.nan for value in values]
    return values


def _find_impossible(columns: Columns) -> set[int]:
    number, total, epoch, time = (columns.get(name) for name in ("number", "total", "epoch", "time"))
    bad: set[int] = set()
    if number and max(number) > MOST_STEPS:
        bad.update(place for place, value in enumerate(number) if value > MOST_STEPS)
    if total and max(total) > MOST_STEPS:
        bad.update(place for place, value in enumerate(total) if value > MOST_STEPS)
    if epoch:
        each = total or [1] * len(epoch)
        bad.update(place for place, value in enumerate(epoch) if value * max(each[place], 1) > MOST_STEPS)
    if time and not (min(time) > 0 and max(time) < MOST_SECONDS):
        bad.update(place for place, value in enumerate(time) if not 0 < value < MOST_SECONDS)
    return bad


def _set_clock(form: StepForm, columns: Columns) -> None:
    # The average since the start, times the steps since then, is finer than a clock of whole seconds, if they agree.
    number, elapsed = columns.get("number"), columns.pop("elapsed", None)
    speed, pace, stamp = columns.pop("speed", None), columns.pop("pace", None), columns.pop("stamp", None)
    if pace is None and speed is not None and form.clock != "stamp":
        pace = [1 / value if value > 0 else math.nan for value in speed]
    fine = None
    if pace is not None and number is not None:
        counts: Sequence[float] = [one + 1 - form.first for one in number]
        if elapsed is not None and speed is None:  # of a resumed run only the steps since then count
            counts = [
                round(clock / each) if each > 0 and clock == clock else one  # noqa: PLR0124 - known
                for clock, each, one in zip(elapsed, pace, counts, strict=True)
            ]
        fine = [each * count for each, count in zip(pace, counts, strict=True)]
    if fine is not None and (elapsed is None or all(map(_agree, fine, elapsed, pace or ()))):
        columns["clock"] = fine
    elif elapsed is not None or stamp is not None:
        columns["clock"] = elapsed if elapsed is not None else stamp or []


def _agree(fine: float, elapsed: float, pace: float) -> bool:
    # The clock is cut to whole seconds, the average has six decimals.
    doubt = _SIXTH_DIGIT * fine * max(pace, 1 / pace) + _SLIP
    return doubt < 1 and elapsed - doubt <= fine < elapsed + 1 + doubt


def _parse_clock(text: bytes) -> float:
    # `1 day, 2:03:04`, `12:34` or `1h 2m 3s`; also plain seconds.
    days, _, clock = text.rpartition(b", ")
    try:
        if b":" in clock:
            whole = 0
            for part in clock.split(b":"):
                whole = 60 * whole + int(part)
            return float(whole + _SECONDS["d"] * int(days.split()[0])) if days else float(whole)
        parts = _CLOCK_PARTS.findall(text.decode())
        return float(sum(int(count) * _SECONDS[unit] for count, unit in parts)) if parts else float(text)
    except (ValueError, IndexError):  # not a clock, in a table
        return math.nan


def _parse_stamp(text: bytes) -> float:
    words = text.strip()
    try:
        if words[4:5] != b"-":
            return float(words)
        return _parse_minute(words[:16]) + float(words[17:].removesuffix(b"Z").replace(b",", b".") or 0)
    except ValueError:
        return math.nan


@lru_cache(maxsize=1024)
def _parse_minute(text: bytes) -> float:
    # The zone does not matter to differences, so that none is assumed.
    return (datetime.fromisoformat(text.decode()) - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001 - as above
