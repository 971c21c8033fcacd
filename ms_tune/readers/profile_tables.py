"""Read an Ascend profile: ``step_trace_time.csv``, ``kernel_details.csv``, ``communication.json``.

The formats are those of CANN 8 with torch_npu 2.1 to 2.6 and MindSpore 2.4 to 2.10 (``ASCEND_PROFILER_OUTPUT``). Times
are microseconds, in ``communication.json`` milliseconds. A row cut off at the end is skipped and reported.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ms_tune.errors import TraceError
from ms_tune.readers.lines import read_json, reading
from ms_tune.readers.scopes import ScopePass, find_pass, split_layer
from ms_tune.records import Record
from ms_tune.text import msg

_Key = TypeVar("_Key")

_MAX_JSON = 512 * 1024**2
_MOST_ROWS = 5_000_000
_MOST_TYPES = 100_000
_MOST_LAYERS, _LONGEST_NUMBER = 10_000, 7  # layers, and characters of a layer's number
_MOST_SHAPES = 3  # that are listed per type
_NO_SHAPES = ("", "N/A")
_TINY = 10.0  # microseconds
_COMMUNICATION = ("HCCL", "COMMUNICATION")


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of one rank, in microseconds; see :attr:`error_us`."""

    step: str  # its name; empty if the capture has no steps
    kind: str  # `rank` or `stage` in a cluster's table; `rank` elsewhere
    index: str  # the rank, or the ranks of a stage
    compute: float  # the device computes
    exposed: float  # the device communicates without computing
    communication: float  # the device communicates
    free: float  # the device does neither
    stage: float  # the step, without its bubble
    bubble: float  # waiting for other pipeline stages, according to the exporter

    @property
    def whole_us(self) -> float:
        """Return the duration of the step with its bubble."""
        return self.compute + self.exposed + self.free

    @property
    def error_us(self) -> float:
        """Return the difference between compute + exposed communication + free time and the step; 0 in a valid table.

        The exporter subtracts the bubble from the step in a cluster's table.
        """
        return min(abs(self.whole_us - self.stage), abs(self.whole_us - self.stage - self.bubble))


@dataclass(frozen=True, slots=True)
class OperatorShape:
    """Kernels of one type with the same input shapes, as the exporter writes them: ``8,4096;4096,11008``."""

    inputs: str
    count: int
    microseconds: float


@dataclass(frozen=True, slots=True)
class OperatorType:
    """All kernels of one type on one kind of core, with the slowest shapes (only in profiles of levels 1 and 2)."""

    name: str
    core: str
    count: int
    microseconds: float
    shapes: tuple[OperatorShape, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerTime:
    """The kernels of one layer, by their scopes."""

    name: str  # `layers.3`; in a table with several lists `mtp.layers.3`
    cells: tuple[str, str]  # the cell that contains the list, and the list: `mtp`, `layers`
    number: int  # its number in the list
    count: int  # kernels
    microseconds: Mapping[ScopePass, float]  # kernel time by pass


@dataclass(frozen=True, slots=True)
class Kernels:
    """Summary of the kernels of a rank."""

    count: int  # compute kernels
    microseconds: float  # their total time
    below_10_us: int  # number of kernels shorter than 10 microseconds
    ai_cpu: int  # number of kernels on the AI CPU, and their time
    ai_cpu_us: float
    types: tuple[OperatorType, ...]  # by type, the longest first
    cores: bool  # whether the table has the core of each kernel, as in levels 1 and 2
    streams: Mapping[str, tuple[int, float]]  # kernels and microseconds by stream
    layers: tuple[LayerTime, ...]  # by layer, in order; empty if names have no scopes
    cut_off: bool  # the table ends in the middle of a row


class ProfileCollective(Record):
    """A collective, send or receive, in microseconds."""

    name: str  # the exporter's name, without its communicator
    step: str  # its step
    point_to_point: bool  # whether it is a send or a receive
    elapsed: float  # from its start to its end
    transit: float  # data transfer within it; the table's Wait Time is that of one plane only


def read_steps(path: Path) -> list[StepRow]:
    """Read the steps of ``step_trace_time.csv``, or of a cluster's ``cluster_step_trace_time.csv``."""
    rows = []
    for line, row in _read_rows(path, ("Computing", "Free", "Stage")):
        names = ("Computing", "Communication(Not Overlapped)", "Communication", "Free", "Stage", "Bubble")
        values = [_parse_number(row.get(name)) for name in names]
        if any(value is None for value in values[:1] + values[3:5]):
            raise TraceError(msg("trace.profile.row"), path=path, line=line)
        compute, exposed, communication, free, stage, bubble = (value or 0.0 for value in values)
        kind, index = (row.get("Type") or "rank").strip(), (row.get("Index") or "").strip()
        step = (row.get("Step") or "").strip()
        rows.append(StepRow(step, kind, index, compute, exposed, communication, free, stage, bubble))
    return rows


def read_kernels(path: Path) -> Kernels:
    """Read the kernels of ``kernel_details.csv``. Raises TraceError: the file is unreadable or invalid."""
    types: dict[tuple[str, str], list[float]] = {}
    shapes: dict[tuple[str, str, str], list[float]] = {}
    streams: dict[str, list[float]] = {}
    layers: dict[tuple[str, str, int], dict[ScopePass, list[float]]] = {}
    count = tiny = ai_cpu = 0
    total = slow = 0.0
    cores = cut_off = False
    for _, row in _read_rows(path, ("Name", "Duration(us)")):
        length = _parse_number(row.get("Duration(us)"))
        if length is None:
            cut_off = True
            continue
        core = (row.get("Accelerator Core") or "N/A").strip()
        name = (row.get("Type") or row["Name"] or "").strip()
        if core in _COMMUNICATION or name.lower().startswith(("hcom", "hccl")):
            continue
        cores = cores or core != "N/A"
        count, total = count + 1, total + length
        tiny += length < _TINY
        if core == "AI_CPU":
            ai_cpu, slow = ai_cpu + 1, slow + length
        if len(types) < _MOST_TYPES or (name, core) in types:
            _add_time(types, (name, core), length)
        inputs = (row.get("Input Shapes") or "").strip('" \t')
        if inputs not in _NO_SHAPES and (len(shapes) < _MOST_TYPES or (name, core, inputs) in shapes):
            _add_time(shapes, (name, core, inputs), length)
        _add_time(streams, (row.get("Stream ID") or "").strip(), length)
        if (scope := split_layer(row["Name"])) and len(scope[2]) < _LONGEST_NUMBER:
            layer = (*scope[:2], int(scope[2]))
            if layer in layers or len(layers) < _MOST_LAYERS:
                _add_time(layers.setdefault(layer, {}), find_pass(row["Name"].strip()), length)
    found = _operator_types(types, shapes)
    each = {stream: (int(n), length) for stream, (n, length) in sorted(streams.items()) if stream}
    return Kernels(count, total, tiny, ai_cpu, slow, tuple(found), cores, each, tuple(_layer_times(layers)), cut_off)


def read_collectives(path: Path) -> list[ProfileCollective]:
    """Read the collectives of ``communication.json``. Raises TraceError: the file is unreadable or invalid."""
    too_long = msg("trace.profile.long", limit=_MAX_JSON // 1024**2)
    data = read_json(path, _MAX_JSON, too_long, "trace.profile.json")
    found = []
    for step, kinds in _items_of(data):
        for kind, operators in _items_of(kinds):
            for name, entry in _items_of(operators):
                times = entry.get("Communication Time Info") if isinstance(entry, dict) else None
                if not isinstance(times, dict) or name.startswith("Total"):
                    continue
                elapsed, transit = (
                    _parse_number(times.get("Elapse Time(ms)")),
                    _parse_number(times.get("Transit Time(ms)")),
                )
                if elapsed is not None:
                    short = name.partition("@")[0]
                    peer = kind == "p2p" or is_point_to_point(short)
                    found.append(ProfileCollective(short, step, peer, elapsed * 1000, (transit or 0.0) * 1000))
    return found


def is_point_to_point(name: str) -> bool:
    """Return whether a collective is a send or receive; some exporters list ``hcom_BatchSendRecv`` with them."""
    return any(word in name.lower() for word in ("send", "receive", "recv"))


def _items_of(data: object) -> Iterator[tuple[str, object]]:
    if isinstance(data, dict):
        yield from data.items()


def _operator_types(
    types: Mapping[tuple[str, str], list[float]], shapes: Mapping[tuple[str, str, str], list[float]]
) -> list[OperatorType]:
    each: dict[tuple[str, str], list[OperatorShape]] = {}
    for (name, core, inputs), (count, length) in sorted(shapes.items(), key=lambda one: -one[1][1]):
        some = each.setdefault((name, core), [])
        if len(some) < _MOST_SHAPES:
            some.append(OperatorShape(inputs, int(count), length))
    found = [OperatorType(*key, int(count), total, tuple(each.get(key, ()))) for key, (count, total) in types.items()]
    return sorted(found, key=lambda one: -one.microseconds)


def _layer_times(layers: Mapping[tuple[str, str, int], Mapping[ScopePass, list[float]]]) -> Iterator[LayerTime]:
    lists = {key[:2] for key in layers}
    for (owner, name, number), passes in sorted(layers.items()):
        label = f"{owner}.{name}.{number}" if owner and len(lists) > 1 else f"{name}.{number}"
        count = sum(int(count) for count, _ in passes.values())
        yield LayerTime(
            label, (owner, name), number, count, {one: passes[one][1] for one in ScopePass if one in passes}
        )


def _add_time(table: dict[_Key, list[float]], key: _Key, length: float) -> None:
    one = table.setdefault(key, [0, 0.0])
    one[0] += 1
    one[1] += length


def _read_rows(path: Path, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with reading(path), path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            reader = csv.DictReader(file)
            names = [name.strip() for name in reader.fieldnames or ()]
            missing = [name for name in needed if name not in names]
            if missing:
                hint = msg("trace.profile.columns.hint")
                raise TraceError(msg("trace.profile.columns", missing=", ".join(missing)), hint, path=path)
            reader.fieldnames = names
            for number, row in enumerate(reader):
                if number >= _MOST_ROWS:
                    return
                yield reader.line_num, {key: value for key, value in row.items() if isinstance(value, str)}
    except csv.Error as error:
        raise TraceError(msg("trace.profile.csv", detail=str(error)), path=path) from error


def _parse_number(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]  # other values raise
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and abs(number) < 1e18 else None  # noqa: PLR2004 - no time is this long
