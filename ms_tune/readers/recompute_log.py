"""Read which layers a job recomputed and swapped from MindFormers' "Formative" lists and "Set ... at layer" lines.

``LayerSetting`` (static graph, MindFormers 1.6 to 2.1) and ``activation_checkpoint.py`` (dynamic graph, 2.0 and 2.1)
print the lines, after the prefixes of ``mindformers/tools/logger.py``: ``date - name[place] - INFO - `` on the standard
output, ``[INFO] date [place] function: `` in ``info.log``. A log may contain several runs, mixed lines of several
ranks, and lines that are cut off or run into each other. It is streamed; only these lines are kept.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from ms_tune.readers.lines import find_lines, open_log, parse_rank, read_line_blocks
from ms_tune.records import Record

_Key = TypeVar("_Key")

_MAX_LINES = 50_000  # lines of layers per run
_MAX_RUNS = 16

_FORMATIVE, _AT_LAYER = "Formative ", " at layer "
_NEW_RUN = ("Init Config", "Applying parallelism to model")  # trainer.py of the static and of the dynamic graph
# Lines between those that are read; they only show that the log continues.
_REMARKS = ("have the highest priority", "will be removed.", "will not be effective", "enabled swap do not work")
_NEEDLES = tuple(
    text.encode()
    for text in (_FORMATIVE, _AT_LAYER, "layers per stage: ", "id list", "_config from dict: ", *_NEW_RUN, *_REMARKS)
)
PLACEMENT = "num_layers per stage"
_LIST = re.compile(
    r"(Accumulated num_layers per stage|num_layers per stage|Pipeline id list with start_stage|Interleave id list"
    r"|Formative (?:layer_recompute|select(?:_comm)?_recompute(?:_exclude)?|layer swap|op swap)): (.*)"
)
_SET = re.compile(
    r"Set (full recompute|select (?:comm )?recompute(?: exclude)?|exclude recompute|layer swap|op_swap|select swap)"
    r"(?: on)? at layer (\d{1,6})(?:\s+and value is: (\S+)|: (.*))?\s*$"
)
_SECTION_LINE = re.compile(r"initial (\w{1,40}_config) from dict: (.*)")
_PREFIX = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - |\[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\] \d{4}-\d\d-\d\d "
)
_ARRAY = re.compile(r"array\((\[[^\[\]]*\])(?:, dtype=\w+)?\)|np\.int\d\d\((-?\d+)\)")


class LogLine(Record):
    """The content of one line."""

    number: int  # its line in the file, from 1
    value: object  # the text after its name, parsed as a Python value if possible; with single blanks
    damaged: bool = False  # the line is cut off, or another one runs into it


class LoggedRecompute:
    """The settings of the layers of one run; each name with its different values, in order."""

    def __init__(self) -> None:
        # The lists by their names in the log, such as `Formative select_recompute`.
        self.lists: dict[str, tuple[LogLine, ...]] = {}
        # The setting of each layer: by its name (`full recompute`) and the layer's number.
        self.layers: dict[tuple[str, int], tuple[LogLine, ...]] = {}
        self.sections: dict[str, LogLine] = {}  # the sections of the job's config, by name
        # Numbers of lines that are cut off after their beginning.
        self.damaged: list[int] = []
        # The number of the last line of all, also if it is not kept because it repeats another one or is a remark.
        self.last: list[int] = []

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of all its lines, unordered."""
        lines = [line.number for lines in (*self.lists.values(), *self.layers.values()) for line in lines]
        return [*lines, *self.damaged, *self.last]


class RecomputeLog(Record):
    """The contents of one log file."""

    path: Path  # the file
    rank: int | None  # the rank that wrote it, if its name shows it
    runs: tuple[LoggedRecompute, ...]  # its runs; only the last ones if there are many
    lines: int  # number of lines of the file
    framework: bool  # whether any line is from MindFormers
    ended: bool = True  # whether the last line has an end

    @property
    def cut_off(self) -> bool:
        """Return whether the file ends with a line about layers; a complete log has other lines after them."""
        return bool(self.runs) and max(self.runs[-1].numbers, default=0) >= self.lines - (not self.ended) > 0


def read_recompute_log(path: Path) -> RecomputeLog:
    """Read a log of any length. Raises TraceError: the file is unreadable."""
    reader, total, framework, ended = _RecomputeLogReader(), 0, False, True
    with open_log(path) as file:
        for body, first in read_line_blocks(file):
            framework = framework or b"mindformers" in body
            for number, line, whole in find_lines(body, first, _NEEDLES):
                reader.take(number, line, whole=whole)
            ended = body.endswith(b"\n")
            total = first + body.count(b"\n") - ended
    return RecomputeLog(path, parse_rank(path), reader.list_runs(), total, framework, ended)


def read_lines(lines: Iterable[str]) -> LoggedRecompute:
    """Read lines without prefixes, all of one run."""
    reader = _RecomputeLogReader()
    for number, line in enumerate(lines, start=1):
        reader.take(number, line)
    return next(iter(reader.list_runs()), LoggedRecompute())


def read_value(text: str) -> object:
    """Return a value as Python prints it, or the text with single blanks if it cannot be parsed."""
    text = " ".join(_ARRAY.sub(r"\1\2", text).split())
    # Patterns are printed with doubled escapes; documents show single ones.
    escaped = text.replace("\\\\", "\\").replace("\\", "\\\\")
    try:
        value: object = ast.literal_eval(escaped)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    return value


class _RecomputeLogReader:
    """The runs found so far.

    The static graph prints its lists again for each block of layers that it sets up: with prediction layers twice per
    run, and once for each rank in the same file. Equal lists with no start of a run between them are one run.
    """

    def __init__(self) -> None:
        self._runs: list[LoggedRecompute] = []
        self._block = LoggedRecompute()
        self._marked = False  # the run begins with this block

    def take(self, number: int, line: str, *, whole: bool = True) -> None:
        for start, end in pairwise(sorted({0, *(match.start() for match in _PREFIX.finditer(line)), len(line)})):
            self._read_message(number, line[start:end], glued=end < len(line) or not whole)

    def list_runs(self) -> tuple[LoggedRecompute, ...]:
        self._close_block()
        return tuple(self._runs[-_MAX_RUNS:])

    def _read_message(self, number: int, text: str, *, glued: bool) -> None:
        if any(word in text for word in _NEW_RUN):
            self._close_block()
            self._marked = True
            return
        if match := _LIST.search(text):
            value = read_value(match[2])
            damaged = glued or isinstance(value, str)
            if match[1] == PLACEMENT and len(self._block.lists) > 1:
                self._close_block()
            _add_line(self._block.lists, match[1], LogLine(number, value, damaged))
        elif match := _SET.search(text):
            if len(self._block.layers) < _MAX_LINES:
                value = " ".join((match[3] or match[4] or "").split())
                _add_line(self._block.layers, (match[1], int(match[2])), LogLine(number, value, glued))
        elif match := _SECTION_LINE.search(text):
            if self._block.lists:
                self._close_block()
            self._block.sections[match[1]] = LogLine(number, read_value(match[2]), glued)
            return
        elif all(remark not in text for remark in _REMARKS):
            if _FORMATIVE not in text and (_AT_LAYER not in text or "Set " not in text):
                return
            self._block.damaged.append(number)
        self._block.last[:] = [number]

    def _close_block(self) -> None:
        block, self._block = self._block, LoggedRecompute()
        if not (block.lists or block.layers or block.damaged):
            self._block.sections.update(block.sections)  # the sections come before the lists
            return
        marked, self._marked = self._marked, False
        last = self._runs[-1] if self._runs else None
        if last is None or marked or not _has_same_lists(last, block):
            self._runs.append(block)
            del self._runs[: -2 * _MAX_RUNS]
            return
        for name, lines in block.lists.items():
            for line in lines:
                _add_line(last.lists, name, line)
        for key, lines in block.layers.items():
            for line in lines:
                _add_line(last.layers, key, line)
        last.damaged.extend(block.damaged)
        last.last[:] = block.last


def _has_same_lists(run: LoggedRecompute, block: LoggedRecompute) -> bool:
    pairs = ((_whole_values(run.lists.get(name, ())), _whole_values(lines)) for name, lines in block.lists.items())
    return all(before == after for before, after in pairs if before and after)


def _whole_values(lines: Sequence[LogLine]) -> list[object]:
    return [line.value for line in lines if not line.damaged]


def _add_line(table: dict[_Key, tuple[LogLine, ...]], key: _Key, line: LogLine) -> None:
    known = table.get(key, ())
    if all((one.value, one.damaged) != (line.value, line.damaged) for one in known):
        table[key] = (*known, line)
