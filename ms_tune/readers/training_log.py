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
from itertools import accumulate, pairwise
from operator import lt
from pathlib import Path
from shlex import quote

from ms_tune.errors import NoStepsError, TraceError
from ms_tune.facts.query import load
from ms_tune.readers.lines import (
    UTF_16,
    decode_line,
    find_likely_lines,
    open_log,
    parse_rank,
    read_line_blocks,
    split_rank,
)
from ms_tune.readers.logged_settings import LoggedSettings, read_settings
from ms_tune.readers.logged_steps import (
    NOT_LOGGED,
    LoggedMemory,
    LoggedTraining,
    RankSteps,
    Remark,
    TrainingLog,
    read_baseline,
)
from ms_tune.readers.memory_log import REPORT_WORDS, join_reports, parse_reports
from ms_tune.readers.plain_pickle import no_collection
from ms_tune.readers.step_lines import (
    Columns,
    LineKind,
    StepForm,
    convert_rows,
    join_records,
    learn_line_layout,
    locate_steps,
    step_forms,
    table_form,
)
from ms_tune.readers.step_tables import read_step_table, read_trainer_state
from ms_tune.text import msg

_Layout = tuple[LineKind, Callable[[bytes], tuple[bytes, ...]]]

_FEWEST_STEPS = 3  # of a log that no known trainer wrote
_MOST_STEPS = 500_000  # kept per file; of more, every second one
_MOST_RUNS = 1000
_MOST_RANKS = 4096
_MOST_REMARKS = 10_000
_MOST_DAMAGED = 100
_TAIL = re.compile(r"==> \S{0,400}worker_(\d{1,6})\.log <==")
_ANSI = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_DIGITS, _FLAT = bytes.maketrans(b"123456789", b"0" * 9), bytes.maketrans(b"123456789\r", b"0" * 9 + b"\n")
_MOST_LAYOUTS = 20_000  # layouts to keep; a log has some dozen
_LONGEST = 4096  # bytes of a line; the layouts of longer ones are not kept
_MOST_WAITING = 4000  # steps; more would not fit into a cache
_MANY_DRAWINGS = 8  # of progress bars, in one line
_OF_BOTH = {"number", "total", "epoch", "rank", "stamp"}  # values that both lines of a step may have
_OF_BARS = ("elapsed", "number", "total")  # values of a progress bar
_MILLISECONDS = 1000
_FEW = 8  # lines that are read at both ends of a stretch
_SAME_LOSS = 1e-3  # relative difference of one loss that two ranks report
_ENOUGH = 64 * 1024**2  # bytes after which only lines of trainers that were met are searched
_OF_GPUS, _OF_NPUS = (b"nccl", b"cuda", b"rocm", b"hip mem"), (b"npu", b"ascend", b"hccl")
_NONE = LineKind(table_form(""), ())
_UNKNOWN: _Layout = (_NONE._replace(), lambda _line: ())
_SKIPPED: _Layout = (_NONE._replace(), lambda _line: ())  # of lines with one of the words, but nothing to read


def read_training_log(
    path: Path, on_bytes: Callable[[int], None] = lambda _count: None, pattern: StepForm | None = None
) -> TrainingLog:
    """Read a log of any length, a table, Hugging Face's state, or a baseline; with ``pattern`` only its lines.

    If no line is one of a known trainer, lines with a counter and a loss are steps, if they are several.
    """
    if pattern is not None:
        return _read_forms(path, on_bytes, (pattern,))
    try:
        return _read_forms(path, on_bytes, step_forms(), tables=True, most=_ENOUGH if path.is_file() else math.inf)
    except NoStepsError:
        if not path.is_file():  # a pipe can be read once
            raise
        try:
            found = _read_forms(path, lambda _count: None, step_forms("general"))
        except NoStepsError:
            found = None
        if found is not None and max(len(rank) for run in found.runs for rank in run.ranks) >= _FEWEST_STEPS:
            return found
        return _read_forms(path, lambda _count: None, step_forms(), tables=True)


@no_collection()
def _read_forms(
    path: Path,
    on_bytes: Callable[[int], None],
    forms: Sequence[StepForm],
    *,
    tables: bool = False,
    most: float = math.inf,  # bytes without a step after which the others are not read
) -> TrainingLog:
    reader, ended, head = _TrainingLogReader(forms), True, b""
    table = read_step_table(path) if tables else None
    if table is not None:
        for kind, rows, lines in table:
            reader.add_rows(kind, rows, lines)
        on_bytes(path.stat().st_size if path.is_file() else 0)
    else:
        with open_log(path) as file:
            for body, first in join_records(read_line_blocks(file), forms):
                if first == 1 and body.lstrip()[:1] == b"{" and path.suffix == ".json":
                    state = read_trainer_state(path)
                    if state is None:
                        return TrainingLog(path, parse_rank(path), (read_baseline(path),))
                    body = state  # noqa: PLW2901 - the same as lines
                head = head or body[:2]
                reader.read(body, first)
                ended = body.endswith(b"\n")
                on_bytes(len(body))
                if path.suffix == ".json" or (reader.size > most and not reader.has_steps):
                    break
    reader.place_batch()
    runs = tuple(reader.choose_forms())
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
        dropped=reader.dropped + sum(rank.seen - len(rank) for run in runs for rank in run.ranks),
        orphans=reader.orphans,
        cut_off=not ended,
    )


def _without_steps(path: Path, head: bytes) -> TraceError:
    if head in UTF_16:
        return TraceError(msg("trace.log.utf-16"), msg("trace.log.utf-16.hint", file=quote(str(path))), path=path)
    return NoStepsError(msg("trace.steps.none"), msg("trace.steps.none.hint"), path=path)


@dataclass(slots=True)
class _StepWriter:
    """A writer of lines of one form: one rank, or, without prefixes, perhaps several."""

    run: int = -1  # number of its current run
    last: int = 0  # the largest step number in the run
    epoch: int = 0
    counted: int = 0  # the counter of the latest line
    offset: int = 0  # steps of the earlier epochs, for lines without the number of steps per epoch
    latest: RankSteps | None = None


class _Bar:
    """The progress bars of a log: the one whose counter moves between two lines of the trainer is the trainer's."""

    def __init__(self) -> None:
        self.seen: dict[bytes, tuple[bytes, bytes]] = {}  # by the total: the counter and the clock
        self._used: tuple[bytes, bytes] = (b"", b"")
        self._number = self._stride = 0

    def read_values(self) -> tuple[tuple[str, ...], tuple[bytes, ...]]:
        """Return counter, total and clock of the progress bar for the current step; without a bar only the counter."""
        total, before = self._used
        if total not in self.seen or self.seen[total][0] == before:
            moved = [one for one in self.seen if one != total]
            total = moved[-1] if moved and not before else total
        if total in self.seen and self.seen[total][0] != before:
            number, clock = self.seen[total]
            self._used = (total, number)
            step, stride = int(number), max(self._stride, 1)
            if self._number - stride < step <= self._number:  # it is drawn after the line, and shows the step before
                step = self._number + stride
            self._stride, self._number = max(step - self._number, 1), step
            return _OF_BARS, (clock, b"%d" % step, total)
        # The bar was not drawn again since the last line, or the log lacks one.
        self._number += max(self._stride, 1)
        number = b"%d" % self._number
        return (_OF_BARS, (b"nan", number, total)) if total else (("number",), (number,))


class _TrainingLogReader:
    def __init__(self, forms: Sequence[StepForm]) -> None:
        self.runs: list[LoggedTraining] = []
        self.damaged: list[int] = []
        self.damaged_count = self.dropped = self.orphans = 0
        self._forms = forms
        self._events = load("step_lines")["events"]
        words = {word for form in forms for word in form.words}
        self._others = tuple(word.encode() for word in (*REPORT_WORDS, ".log <==", *self._events))
        self._needles = (*(word.encode() for word in sorted(words)), *self._others) if words else (b"",)
        self.size = 0  # bytes read so far
        self._gpu = False
        self._settings = LoggedSettings()
        self._step_count = 0
        self._dense = False
        self._writers: dict[tuple[int | None, str], _StepWriter] = {}
        self._tailed: int | None = None  # the rank of the lines that `tail -f` shows
        self._latest: RankSteps | None = None
        self._early: dict[int, LoggedMemory] = {}  # memory reports that precede a run's first step
        self._bar = _Bar()
        self._epoch_seen = 0  # steps before the latest line of TimeMonitor
        self._epoch_time: bytes | None = None  # of a line of TimeMonitor before its line of LossMonitor

        self._layouts: dict[bytes, _Layout | None] = {}  # by the line with all digits replaced by 0
        self._kinds: dict[tuple[str, tuple[str, ...]], LineKind] = {}
        self._kind = _NONE  # of the rows that wait
        self._rows: list[tuple[bytes, ...]] = []
        self._lines: list[int] = []
        self._added: list[tuple[bytes, ...]] = []  # values of other lines about the first of the rows that wait
        self._added_names: tuple[str, ...] = ()
        self._rates: dict[int, float] = {}  # samples/s per card of some waiting rows

    @property
    def has_steps(self) -> bool:
        """Return whether a step was found."""
        return bool(self.runs or self._rows)

    def read(self, body: bytes, first: int) -> None:
        """Read some lines, of which the first has this number."""
        if first == 1:
            head = body.lower()
            self._gpu = any(map(head.__contains__, _OF_GPUS)) and not any(map(head.__contains__, _OF_NPUS))
            self._settings = read_settings(body)
        if b"\x1b" in body:
            body = _ANSI.sub(b"", body)
        self.size += len(body)
        if self.size > _ENOUGH and self._kinds:
            self._keep_forms_met()
        if len(self._rows) > _MOST_WAITING:
            self.place_batch()
        if self._latest is not None and self._latest.every > 1 and len(self.runs[-1].ranks) == 1:
            self.place_batch()
            self._read_some(body, first, self._latest.every)
        else:
            self._read_any(body, first)

    def _read_some(self, body: bytes, first: int, every: int) -> None:
        # Of a long log read the lines that may report something, and of each stretch of others the first ones, if its
        # counters rise evenly: the steps between are known then.
        pieces, done, begin = body.translate(_FLAT).split(b"\n"), 0, 0
        silent = {piece for piece in {*pieces} if self._is_silent(piece)}
        ends = [0, *accumulate(len(piece) + 1 for piece in pieces)]
        for end in [*(at for at, piece in enumerate(pieces) if piece not in silent), len(pieces) - 1]:
            after, until, begin = begin + max((end - begin) // every, _FEW), end - _FEW, end + 1
            count = 0
            if until - after > _FEW:
                lines = [body[ends[at] : ends[at + 1] - 1] for at in range(after, until)]
                count = self._count_steps(pieces[after:until], lines)
            if count:
                self._read_any(body[done : ends[after]], first + body.count(b"\n", 0, done))
                self.place_batch(dense=True)
                if self._latest is not None:
                    self._latest.seen += count
                done = ends[until]
        self._read_any(body[done:], first + body.count(b"\n", 0, done))

    def _is_silent(self, piece: bytes) -> bool:
        # Return whether a line, whose digits are replaced by 0, is known and reports nothing but figures of a good step.
        layout = self._layouts.get(piece, _UNKNOWN) if piece.strip() else _SKIPPED
        if layout is None or layout in (_UNKNOWN, _SKIPPED) or layout[0].form.role:
            return layout is _SKIPPED or (layout is not None and layout[0].form.role in ("bar", "rate"))
        values = dict(zip(layout[0].names, layout[1](piece), strict=False))
        known = self._latest is not None and layout[0].form is self._latest.form
        finite = all(math.isfinite(float(values.get(name, 0))) for name in ("loss", "norm"))
        return known and finite and values.get("overflow") != b"True" and ("loss" in values or "skipped" not in values)

    def _count_steps(self, pieces: Sequence[bytes], lines: Sequence[bytes]) -> int:
        # Return the number of steps in some silent lines; 0 if their counters do not rise evenly.
        kinds: dict[tuple[str, ...], set[bytes]] = {}
        for piece in {*pieces}:
            layout = self._layouts.get(piece)
            if layout is not None and layout is not _SKIPPED and not layout[0].form.role:
                kinds.setdefault(layout[0].names, set()).add(piece)
        spans, count = [], 0
        for names, some in kinds.items():
            places = [at for at, piece in enumerate(pieces) if piece in some]
            rank = self._latest.rank if self._latest is not None else None
            good = {
                names.index(name): value
                for name, value in (("skipped", 0), ("nan", 0), ("rank", rank))
                if name in names
            }
            takes = [(self._layouts[pieces[at]], lines[at]) for at in (places if good else [*places[:2], places[-1]])]
            rows = [layout[1](line) for layout, line in takes if layout is not None]
            if any(int(row[at]) != value for at, value in good.items() for row in rows):
                return 0
            if "number" not in names:
                count += len(places)
                continue
            begin, then, last = (int(row[names.index("number")]) for row in (*rows[:2], rows[-1]))
            if then <= begin or last - begin != (then - begin) * (len(places) - 1):
                return 0
            spans.append((begin, then - begin, last))
        if spans and (count or len({(rise, begin % rise) for begin, rise, _ in spans}) > 1):
            return 0
        return count or ((min(last for *_, last in spans) - max(spans)[0]) // spans[0][1] + 1 if spans else 0)

    def _read_any(self, body: bytes, first: int) -> None:
        needles = self._needles
        lines = find_likely_lines(body, first, needles)
        if b"\r" in body:
            lines = _split_drawings(lines, b" " if any(form.redrawn for form in self._forms) else b"/")
        known, kind, rows, numbers = self._layouts, self._kind, self._rows, self._lines
        bars = self._bar.seen
        for number, line, whole in lines:
            layout = known.get(key := line.translate(_DIGITS), _UNKNOWN)
            if layout is not None and layout[0] is kind and whole:
                rows.append(layout[1](line))
                numbers.append(number)
            elif layout is _SKIPPED:
                continue
            elif layout is _UNKNOWN and not any(needle in line for needle in needles):
                if len(known) < _MOST_LAYOUTS // 2 and len(line) <= _LONGEST:
                    known[key] = _SKIPPED
            elif layout is not None and layout[0].names is _OF_BARS and whole:
                clock, counter, total = layout[1](line)
                bars.pop(total, None)
                bars[total] = (counter, clock)
            else:
                self._read_other_line(number, line, layout, whole=whole)
                kind, rows, numbers = self._kind, self._rows, self._lines

    def _keep_forms_met(self) -> None:
        met = {name for name, _ in self._kinds}
        kept = [form for form in self._forms if form.name in met or form.role in ("epoch", "summary")]
        if len(kept) < len(self._forms):
            words = sorted({word.encode() for form in kept for word in form.words})
            self._forms, self._needles = kept, (*words, *self._others)

    def add_rows(self, kind: LineKind, rows: Sequence[tuple[bytes, ...]], lines: Sequence[int]) -> None:
        """Add rows of a table."""
        self._begin_kind(kind.form, kind.names)
        self._rows.extend(rows)
        self._lines.extend(lines)

    def _layout_for(self, line: bytes) -> _Layout | None:
        key = line.translate(_DIGITS)
        if key in self._layouts:
            return self._layouts[key]
        found = learn_line_layout(line, self._forms)
        if found is None and not self._may_matter(line):
            found = _SKIPPED
        elif found is not None and found[0].form.role == "bar" and any(word in line for word in self._others):
            found = None  # an event after the bar
        elif found is not None:
            kind = self._kinds.setdefault((found[0].form.name, found[0].names), found[0])
            found = (kind._replace(names=_OF_BARS) if kind.form.role == "bar" else kind, found[1])
        if len(self._layouts) >= _MOST_LAYOUTS:
            self._layouts.clear()
        if len(line) <= _LONGEST:
            self._layouts[key] = found
        return found

    def _may_matter(self, line: bytes) -> bool:
        if any(word in line for word in self._others):
            return True
        return any(True for _ in locate_steps(split_rank(decode_line(line))[1], self._forms))

    def _read_other_line(self, number: int, line: bytes, layout: _Layout | None, *, whole: bool) -> None:
        if layout is _UNKNOWN or not whole:
            layout = self._layout_for(line) if whole else None
        if layout is _SKIPPED:
            return
        if layout is None:
            self._read_single_line(number, decode_line(line), whole=whole)
        else:
            self._add_row(layout[0].form, layout[0].names, layout[1](line), number)

    def _begin_kind(self, form: StepForm, names: tuple[str, ...]) -> None:
        if names == self._kind.names and form is self._kind.form:
            return
        kind = self._kinds.get((form.name, names)) or self._kinds.setdefault((form.name, names), LineKind(form, names))
        if kind is not self._kind:
            self.place_batch()
            self._kind = kind

    def _add_row(self, form: StepForm, names: tuple[str, ...], values: tuple[bytes, ...], line: int) -> None:
        if form.role:
            self._read_addition(form, dict(zip(names, values, strict=False)))
            return
        if "number" not in names:
            of_bar, more = self._bar.read_values()
            names, values = names + of_bar, values[: len(names)] + more
        if form is self._kind.form and names != self._kind.names and self._completes(names, values):
            self._added_names = names
            self._added.append(values)
            return
        self._begin_kind(form, names)
        self._rows.append(values)
        self._lines.append(line)

    def _completes(self, names: tuple[str, ...], values: tuple[bytes, ...]) -> bool:
        # Return whether a line has other values of the step in the last row, as its predecessors had.
        whose, count = {*names} & {*self._kind.names}, len(self._rows) - 1
        if len(self._added) != count or "number" not in whose or not whose <= _OF_BOTH:
            return False
        row = dict(zip(self._kind.names, self._rows[-1], strict=False))
        own = dict(zip(names, values, strict=False))
        return names == (self._added_names if count else names) and all(
            row[one] == own[one] for one in whose - {"stamp"}
        )

    def _read_addition(self, form: StepForm, values: Mapping[str, bytes]) -> None:
        if form.role == "rate":
            rate = float(values["rate"])
            rate = rate if 0 <= rate < math.inf else NOT_LOGGED
            if self._rows:
                self._rates[len(self._rows) - 1] = rate
            elif self._latest is not None and len(self._latest):
                self._latest.rate[-1] = rate
            else:
                self.orphans += 1
        elif form.role == "bar":
            self._bar.seen.pop(values["total"], None)
            self._bar.seen[values["total"]] = (values["number"], values["elapsed"])
        elif form.role == "summary":
            self.place_batch()
            if self.runs:
                self.runs[-1].samples = float(values["samples"])
                self.runs[-1].speed = float(values["speed"])
        elif form.role == "epoch":
            self._end_epoch(values["time"])

    def _end_epoch(self, time: bytes) -> None:
        # MindSpore's TimeMonitor: the average of the steps since its last line, or, if it precedes LossMonitor, of the next.
        precedes = self._epoch_time is not None
        self.place_batch()
        steps = next((writer.latest for (_, name), writer in self._writers.items() if name == "mindspore"), None)
        seen, self._epoch_seen = self._epoch_seen, steps.seen if steps else 0
        if steps is not None and steps.seen > seen and not precedes:
            self._fill_times(steps, time)
        else:
            self._place_epoch(steps)
            self._epoch_time = time

    def _place_epoch(self, steps: RankSteps | None) -> None:
        # A line of TimeMonitor without one of LossMonitor is a step of its own.
        if self._epoch_time is not None:
            time, self._epoch_time = self._epoch_time, None
            form = next(one for one in step_forms() if one.name == "mindspore")
            number = b"%d" % (steps.last + 1 if steps else 1)
            self._add_row(form, ("milliseconds", "number"), (time, number), 0)
            self.place_batch()

    def _fill_times(self, steps: RankSteps, time: bytes) -> None:
        place = len(steps) - 1
        while place >= 0 and math.isnan(steps.seconds[place]):
            steps.seconds[place] = float(time) / _MILLISECONDS
            place -= 1

    def place_batch(self, *, dense: bool = False) -> None:
        """Add the rows read so far to the runs that they belong to; if they are ``dense``, all, of a long log as well."""
        self._dense = dense
        kind, rows, lines, rates, added = self._kind, self._rows, self._lines, self._rates, self._added
        self._kind, self._rows, self._lines, self._rates, self._added = _NONE, [], [], {}, []
        if added and (count := len(added)) < len(rows):  # the others are placed as they are
            self._kind, self._rows, self._lines, self._added = kind, rows[:count], lines[:count], added
            self.place_batch(dense=dense)
            rows, lines, rates, added = rows[count:], lines[count:], {}, []
        if not rows:
            return
        columns, bad = convert_rows(kind, rows)
        if added:
            more, worse = convert_rows(kind._replace(names=self._added_names), added)
            columns, bad = {**more, **columns}, bad | worse
        for place in sorted(bad):
            self._count_damage(lines[place])
        columns["line"] = lines
        if rates:
            columns["rate"] = [rates.get(place, NOT_LOGGED) for place in range(len(lines))]
        kept = [place for place in range(len(lines)) if place not in bad] if bad else range(len(lines))
        if kept:
            self._place_columns(kind.form, columns, kept)
        if self._epoch_time is not None and kind.form.name == "mindspore" and self._latest is not None:
            self._fill_times(self._latest, self._epoch_time)
            self._epoch_time = None
        self._thin_steps()

    def _thin_steps(self) -> None:
        ranks = [rank for run in self.runs for rank in run.ranks] if self._step_count > _MOST_STEPS else []
        while self._step_count > max(_MOST_STEPS, len(ranks)):
            for rank in ranks:
                if len(rank) > 1:
                    rank.thin()
            self._step_count = sum(map(len, ranks))

    def _place_columns(self, form: StepForm, columns: Columns, kept: Sequence[int]) -> None:
        ranks = columns.pop("rank", None)
        self._number_over_epochs(form, columns, ranks)
        if ranks is None:
            self._place_rank(form, self._tailed, columns, kept)
            return
        each: dict[int, list[int]] = {}
        for place in kept:
            each.setdefault(int(ranks[place]), []).append(place)
        number = columns["number"]
        rising = all(number[at] < number[after] for some in each.values() for at, after in pairwise(some))
        if rising:
            for rank, some in each.items():
                self._place_rank(form, rank, columns, some)
        else:
            for place in kept:
                self._place_rank(form, int(ranks[place]), columns, [place])
        writer = self._writers.get((int(ranks[kept[-1]]), form.name))
        self._latest = writer.latest if writer else self._latest

    def _number_over_epochs(self, form: StepForm, columns: Columns, ranks: Sequence[float] | None) -> None:
        # Some counters restart with each epoch: with the number of steps of an epoch, or without.
        epoch, total = columns.pop("epoch", None), columns.get("total")
        if epoch is None or (total is not None and max(epoch) <= 1):
            return
        if total is not None:
            numbers = zip(columns["number"], epoch, total, strict=True)
            columns["number"] = [one + max(e - 1, 0) * of for one, e, of in numbers]
            return
        for place, one in enumerate(epoch):
            rank = self._tailed if ranks is None else int(ranks[place])
            writer = self._writers.setdefault((rank, form.name), _StepWriter())
            if one == writer.epoch + 1 and columns["number"][place] + writer.offset <= writer.counted:
                writer.offset = writer.counted
            elif one < writer.epoch:
                writer.offset = 0
            writer.epoch = int(one)
            columns["number"][place] = int(columns["number"][place]) + writer.offset
            writer.counted = int(columns["number"][place])

    def _place_rank(self, form: StepForm, rank: int | None, columns: Columns, kept: Sequence[int]) -> None:
        # Steps that rise, with one total, belong to the steps before them; at each other step a run or a rank begins.
        number, total = columns["number"], columns.get("total")
        if len(kept) == len(number) and all(map(lt, number, number[1:])) and (not total or min(total) == max(total)):
            self._place_part(form, rank, columns, kept)
            return
        begin = 0
        for end in range(1, len(kept) + 1):
            if end < len(kept):
                at, after = kept[end - 1], kept[end]
                if number[after] > number[at] and (total is None or total[after] == total[at]):
                    continue
            self._place_part(form, rank, columns, kept[begin:end])
            begin = end

    def _place_part(self, form: StepForm, rank: int | None, columns: Columns, kept: Sequence[int]) -> None:
        while kept:
            writer = self._writers.get((rank, form.name))
            if writer is None:
                if len(self._writers) >= _MOST_RANKS:
                    self.dropped += len(kept)
                    return
                writer = self._writers[rank, form.name] = _StepWriter()
            first = {name: column[kept[0] : kept[0] + 1] for name, column in columns.items()}
            place, many = self._steps_for(writer, form, rank, first, kept)
            if place is None:
                self.dropped += 1
                kept = kept[1:]
                continue
            if many:
                before = len(place)
                place.extend(_take_rows(columns, many), len(many), dense=self._dense)
                self._step_count += len(place) - before
            writer.last = max(writer.last, place.last)
            self._latest = writer.latest = place
            kept = kept[max(len(many), 1) :]

    def _steps_for(
        self,
        writer: _StepWriter,
        form: StepForm,
        rank: int | None,
        first: Mapping[str, Sequence[float]],
        kept: Sequence[int],
    ) -> tuple[RankSteps | None, Sequence[int]]:
        # Return the steps that some rows continue, and how many of the rows: none if the first completed the last step.
        number, total = int(first["number"][0]), int(first.get("total", [0])[0])
        run = self.runs[writer.run] if writer.run >= 0 else None
        if run is not None and writer.latest is not None and (total == writer.latest.total or not writer.latest.total):
            own = [one for one in run.ranks if one.rank == rank and one.form is form]
            if own and number > own[0].last:
                own[0].total, run.total = own[0].total or total, run.total or total
                return own[0], kept
            if own and number == own[0].last and (form.redrawn or own[0].complete(first)):
                return own[0], ()
            # Without prefixes a repeated step may be that of another rank, at most one step late.
            if own and rank is None and number >= writer.last - 1 and _repeats_step(own[0], first, number):
                later = next((one for one in own[1:] if one.last < number), None)
                return later or _add_rank(run, RankSteps(form, None, total)), kept[:1]
        return self._begin_run(writer, form, rank, number, total), kept

    def _begin_run(
        self, writer: _StepWriter, form: StepForm, rank: int | None, number: int, total: int
    ) -> RankSteps | None:
        repeated = writer.run >= 0 and number == writer.last
        writer.run += 1
        if writer.run == len(self.runs):
            if writer.run >= _MOST_RUNS:
                writer.run -= 1
                return None
            self.runs.append(LoggedTraining(total=total, repeated=repeated, memory=self._early))
            self._early = {}
        writer.last = 0
        return _add_rank(self.runs[writer.run], RankSteps(form, rank, total))

    def _count_damage(self, line: int) -> None:
        self.damaged_count += 1
        if len(self.damaged) < _MOST_DAMAGED:
            self.damaged.append(line)

    def _read_single_line(self, number: int, line: str, *, whole: bool) -> None:
        rank, text = split_rank(line)
        found = False
        for form, spans in locate_steps(text, self._forms, whole=whole):
            found = found or form.role != "bar"  # an event may follow the bar
            if not spans:
                self._count_damage(number)
            if not spans or (form.role and not whole):
                continue
            values = {name: text[start:end].encode() for name, (start, end) in spans.items()}
            if rank is not None and not form.role:
                values["rank"] = b"%d" % rank
            names = tuple(sorted(values))
            self._add_row(form, names, tuple(values[name] for name in names), number)
        if not found:
            self._read_remark(text, number)

    def _read_remark(self, text: str, line: int) -> None:
        kinds = [kind for words, kind in self._events.items() if words in text]
        tail = _TAIL.search(text)
        reports = any(words in text for words in REPORT_WORDS)
        if not kinds and not tail and not reports:
            return
        self.place_batch()
        if tail:
            self._tailed = int(tail[1])
        for memory in parse_reports(text) if reports else ():
            # Ranks do not wait for the one that writes steps: the report may belong to the run that begins.
            begun = self.runs and self._latest is not None and self._latest.last <= memory.steps
            kept = self.runs[-1].memory if begun else self._early
            if memory.rank in kept or len(kept) < _MOST_RANKS:
                kept[memory.rank] = join_reports(kept.get(memory.rank), memory)
        for kind in kinds if self.runs and self._latest is not None else ():
            if len(self.runs[-1].remarks) < _MOST_REMARKS and self._latest is not None:
                self.runs[-1].remarks.append(Remark(kind, self._latest.last, line))

    def choose_forms(self) -> list[LoggedTraining]:
        """Return the runs, each with the lines of the trainer whose lines contain most values."""
        self._place_epoch(self._latest)
        if len(self.runs) == 1:  # of several, the settings may differ
            self.runs[0].settings = self._settings
        for run in self.runs:
            run.gpu = self._gpu
            forms = {rank.form.name for rank in run.ranks}
            if len(forms) < 2:  # noqa: PLR2004 - one form
                continue
            best = max(run.ranks, key=lambda one: (any(not math.isnan(each) for each in one.seconds), len(one)))
            others = [rank for rank in run.ranks if rank.form is not best.form]
            run.ranks = [rank for rank in run.ranks if rank.form is best.form]
            for rank in others:
                for name, trouble in rank.troubles.items():
                    best.troubles.setdefault(name, trouble)
        return self.runs


def _repeats_step(steps: RankSteps, first: Mapping[str, Sequence[float]], number: int) -> bool:
    # Return whether a known step has the same values as this line: the gradient norm, or else the loss.
    place = next((at for at in range(len(steps) - 1, max(len(steps) - 3, -1), -1) if steps.number[at] == number), None)
    if place is None:
        return False
    for name, column, doubt in (("norm", steps.norm, 0.0), ("loss", steps.loss, _SAME_LOSS)):
        mine, theirs = column[place], first.get(name)
        if theirs is not None and mine == mine and theirs[0] == theirs[0]:  # noqa: PLR0124 - both are known
            return math.isclose(mine, theirs[0], rel_tol=doubt)
    return True


def _split_drawings(lines: Iterable[tuple[int, bytes, bool]], before: bytes) -> Iterator[tuple[int, bytes, bool]]:
    # A progress bar is drawn again and again in one line. Of drawings in turn with the same total, or, if a space is what
    # comes before their mark, with the same counter, the last one counts.
    for number, line, whole in lines:
        if b"\r" not in line:
            yield number, line, whole
            continue
        parts, kept, bar = line.split(b"\r"), list[tuple[int, bytes, bool]](), b""
        last = len(parts) - 1  # the others end with a carriage return
        for place, part in zip(range(last, -1, -1), reversed(parts), strict=True):
            if (not bar or bar not in part) and not (part.isspace() or not part):
                kept.append((number, part, whole or place < last))
                # To look for drawings in turn takes longer than to read a few.
                bar = _mark_of_bar(part, before) if last >= _MANY_DRAWINGS else b""
        yield from reversed(kept)


def _mark_of_bar(part: bytes, before: bytes) -> bytes:
    # Return `/300 [` or ` 10/300 [` of `3%|# | 10/300 [00:41<20:32, 4.10s/it]`.
    end = part.rfind(b" [") if b"%|" in part else -1
    return part[part.rfind(before, 0, end) : end + 2] if end > 0 else b""


def _take_rows(columns: Columns, rows: Sequence[int]) -> Mapping[str, Sequence[float]]:
    if len(rows) == len(columns["line"]):
        return columns
    if isinstance(rows, range):
        return {name: column[rows.start : rows.stop] for name, column in columns.items()}
    return {name: [column[at] for at in rows] for name, column in columns.items()}


def _add_rank(run: LoggedTraining, rank: RankSteps) -> RankSteps | None:
    if len(run.ranks) >= _MOST_RANKS:
        return None
    run.ranks.append(rank)
    return rank
