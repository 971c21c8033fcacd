"""Read an Ascend profile: ``step_trace_time.csv``, ``kernel_details.csv`` or ``op_summary_*.csv``, ``communication.json``.

The formats are those of CANN 8 with torch_npu 2.1 to 2.6 and MindSpore 2.4 to 2.10 (``ASCEND_PROFILER_OUTPUT``). Times
are microseconds, in ``communication.json`` milliseconds. A row cut off at the end is skipped and reported.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ms_tune.errors import TraceError
from ms_tune.facts.profile_causes import limit
from ms_tune.readers.kernel_costs import KERNEL_COLUMNS, KernelCosts, KernelLoss
from ms_tune.readers.lines import iterate_table_lines, read_json, reading
from ms_tune.readers.scopes import ScopePass, find_pass, split_layer
from ms_tune.records import Record
from ms_tune.source.files import open_text
from ms_tune.text import msg

_Key = TypeVar("_Key")

_MAX_JSON = 512 * 1024**2
_MOST_ROWS = 5_000_000
_MOST_TYPES = 100_000
_MOST_LAYERS, _LONGEST_NUMBER = 10_000, 7  # layers, and characters of a layer's number
_MOST_SHAPES = 3  # that are listed per type
_NO_SHAPES = ("", "N/A")
_COMMUNICATION = ("HCCL", "COMMUNICATION")
# Names in msprof's own export (op_summary_*.csv) and in newer releases, by the name in kernel_details.csv
# (RENAME_HEADERS of MindSpore 2.9, mindspore/profiler/analysis/viewer/ascend_kernel_details_viewer.py).
_RENAMED = {
    "Op Name": "Name",
    "OP Type": "Type",
    "Task Type": "Accelerator Core",
    "Task Start Time(us)": "Start Time(us)",
    "Task Duration(us)": "Duration(us)",
    "Block Num": "Block Dim",
    "mac_ratio": "aic_mac_ratio",  # one kind of cores: 910A
    "vec_ratio": "aiv_vec_ratio",
    "mte2_ratio": "aiv_mte2_ratio",
    "mte3_ratio": "aiv_mte3_ratio",
}


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
    stage: float | None  # the step, without its bubble; None in tables of older torch_npu, which do not state it
    bubble: float  # waiting for other pipeline stages, according to the exporter

    @property
    def whole_us(self) -> float:
        """Return the duration of the step with its bubble."""
        return self.compute + self.exposed + self.free

    @property
    def error_us(self) -> float | None:
        """Return the difference between compute + exposed communication + free time and the step; None if not stated.

        It is 0 in a valid table. The exporter subtracts the bubble from the step in a cluster's table.
        """
        if self.stage is None:
            return None
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
    types: tuple[OperatorType, ...]  # by type, the longest first
    cores: bool  # whether the table has the core of each kernel, as in levels 1 and 2
    streams: Mapping[str, tuple[int, float]]  # kernels and microseconds by stream
    layers: tuple[LayerTime, ...]  # by layer, in order; empty if names have no scopes
    cut_off: bool  # the table ends in the middle of a row
    # Computing, exposed communication and free time from the first to the last kernel, in microseconds, if asked for;
    # None with several devices.
    split: tuple[float, float, float] | None = None
    losses: Mapping[str, KernelLoss] = field(default_factory=dict)  # by cause: kernels that take longer than they must
    median_us: float = 0.0  # time of a kernel
    rated: bool = False  # whether the table has the ratios of pipelines that show under-used units


class ProfileCollective(Record):
    """A collective, send or receive, in microseconds."""

    name: str  # the exporter's name, without its communicator
    step: str  # its step
    point_to_point: bool  # whether it is a send or a receive
    elapsed: float  # from its start to its end
    transit: float  # data transfer within it; the table's Wait Time is that of one plane only
    packets: tuple[Packets, ...] = ()
    key: str = ""  # identifies it on all ranks of its group: step, name, communicator


@dataclass(frozen=True, slots=True)
class Packets:
    """Packets of one size that a collective sent."""

    transport: str  # `HCCS`, `RDMA`, `PCIE`, `SIO`, `SDMA`
    megabytes: float  # of one, 10^6 bytes
    count: int
    microseconds: float  # their time, over all links


@dataclass(frozen=True, slots=True)
class Link:
    """The data that one rank sent to another, within a group."""

    group: str
    pair: str  # the ranks within the group: `0-1`
    transport: str
    megabytes: float
    microseconds: float


def read_steps(path: Path) -> list[StepRow]:
    """Read the steps of ``step_trace_time.csv``, or of a cluster's ``cluster_step_trace_time.csv``."""
    rows = []
    for line, row in _read_rows(path, ("Computing", "Free")):
        names = ("Computing", "Communication(Not Overlapped)", "Communication", "Free", "Bubble")
        values = [_parse_number(row.get(name)) for name in names]
        if values[0] is None or values[3] is None:
            raise TraceError(msg("trace.profile.row"), path=path, line=line)
        compute, exposed, communication, free, bubble = (value or 0.0 for value in values)
        stage = _parse_number(row.get("Stage"))
        kind, index = (row.get("Type") or "rank").strip(), (row.get("Index") or "").strip()
        step = (row.get("Step") or "").strip()
        rows.append(StepRow(step, kind, index, compute, exposed, communication, free, stage, bubble))
    return rows


def read_kernels(*paths: Path, split: bool = False) -> Kernels:
    """Read the kernels of ``kernel_details.csv``, or of the slices of msprof's ``op_summary_*.csv``.

    With ``split`` also split the time from the first to the last kernel, for exports without a table of steps.
    """
    table = _KernelTable()
    for path in paths:
        for _, row in _read_rows(path, ("Name", "Duration(us)"), _KERNEL_COLUMNS):
            length = _parse_number(row["Duration(us)"])
            if length is None:
                table.cut_off = True
                continue
            table.add(row, length, _parse_number(row.get("Start Time(us)")))
    return table.summarize(split=split)


_KERNEL_COLUMNS = (
    *("Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)"),
    *("Device_id", "Stream ID", "Input Shapes", *KERNEL_COLUMNS),
)


class _KernelTable:
    """The sums over the kernels read so far."""

    def __init__(self) -> None:
        self.cut_off = self.cores = False
        self.count, self.total = 0, 0.0
        self.types: dict[tuple[str, str], list[float]] = {}
        self.shapes: dict[tuple[str, str, str], list[float]] = {}
        self.streams: dict[str, list[float]] = {}
        self.layers: dict[tuple[str, str, int], dict[ScopePass, list[float]]] = {}
        self.costs = KernelCosts()
        self.devices: set[str] = set()
        self.spans = {True: (array("d"), array("d")), False: (array("d"), array("d"))}  # by: is it communication?

    def add(self, row: Mapping[str, str], length: float, start: float | None) -> None:
        """Add a kernel with its start, if known."""
        core = (row.get("Accelerator Core") or "N/A").strip()
        name = (row.get("Type") or row["Name"] or "").strip()
        communication = core in _COMMUNICATION or name.lower().startswith(("hcom", "hccl"))
        if start is not None:
            self.devices.add(row.get("Device_id") or "")
            for column, value in zip(self.spans[communication], (start, length), strict=True):
                column.append(value)
        if communication:
            return
        self.costs.add(row, name, core, length, start)
        self.cores = self.cores or core != "N/A"
        self.count, self.total = self.count + 1, self.total + length
        if len(self.types) < _MOST_TYPES or (name, core) in self.types:
            _add_time(self.types, (name, core), length)
        shape = (name, core, (row.get("Input Shapes") or "").strip('" \t'))
        if shape[2] not in _NO_SHAPES and (len(self.shapes) < _MOST_TYPES or shape in self.shapes):
            _add_time(self.shapes, shape, length)
        _add_time(self.streams, (row.get("Stream ID") or "").strip(), length)
        if (scope := split_layer(row["Name"])) and len(scope[2]) < _LONGEST_NUMBER:
            layer = (*scope[:2], int(scope[2]))
            if layer in self.layers or len(self.layers) < _MOST_LAYERS:
                _add_time(self.layers.setdefault(layer, {}), find_pass(row["Name"].strip()), length)

    def summarize(self, *, split: bool) -> Kernels:
        """Return the summary."""
        streams = {stream: (int(n), length) for stream, (n, length) in sorted(self.streams.items()) if stream}
        return Kernels(
            self.count,
            self.total,
            tuple(_operator_types(self.types, self.shapes)),
            self.cores,
            streams,
            tuple(_layer_times(self.layers)),
            self.cut_off,
            self._split() if split and len(self.devices) == 1 else None,
            self.costs.losses(sorted(zip(*self.spans[True], strict=True))),
            self.costs.median_us,
            self.costs.rated,
        )

    def _split(self) -> tuple[float, float, float]:
        compute = sorted(zip(*self.spans[False], strict=True))
        every = sorted([*compute, *zip(*self.spans[True], strict=True)])
        busy, computing = _union_length(every), _union_length(compute)
        whole = max(start + length for start, length in every) - every[0][0]
        return computing, busy - computing, max(whole - busy, 0.0)


def _union_length(spans: list[tuple[float, float]]) -> float:
    total, last = 0.0, -math.inf
    for start, length in spans:
        total += max(start + length - max(start, last), 0.0)
        last = max(last, start + length)
    return total


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
                elapsed, transit = (_parse_number(times.get(one)) for one in ("Elapse Time(ms)", "Transit Time(ms)"))
                if elapsed is not None:
                    short = name.partition("@")[0]
                    peer = kind == "p2p" or is_point_to_point(short)
                    lengths = (elapsed * 1000, (transit or 0.0) * 1000)
                    sizes = tuple(_read_packets(entry.get("Communication Bandwidth Info")))
                    found.append(ProfileCollective(short, step, peer, *lengths, sizes, f"{step} {name}"))
    return found


def _read_packets(transports: object) -> Iterator[Packets]:
    # SDMA repeats the sums of the links without their sizes.
    for transport, entry in _items_of(transports):
        for size, values in _items_of(entry.get("Size Distribution") if isinstance(entry, dict) else None):
            numbers = [_parse_number(one) for one in [size, *(values if isinstance(values, list) else [])]]
            if len(numbers) == len(("size", "count", "milliseconds")) and all(one and one > 0 for one in numbers):
                megabytes, count, time = (one or 0.0 for one in numbers)
                yield Packets(transport, megabytes, max(int(count), 1), time * 1000)


def read_links(path: Path) -> list[Link]:
    """Read the sums by pair of ranks in ``communication_matrix.json``. Raises TraceError: unreadable or invalid."""
    data = read_json(path, _MAX_JSON, msg("trace.profile.long", limit=_MAX_JSON // 1024**2), "trace.profile.json")
    found: list[Link] = []
    for _, kinds in _items_of(data):
        for kind, groups in _items_of(kinds):
            # Sums and single collectives are listed together.
            totals = [name for name, _ in _items_of(groups) if "-total" in name or name.startswith("Total Op Info")]
            for name, pairs in _items_of(groups):
                for pair, entry in _items_of(pairs if not totals or name in totals else None):
                    if isinstance(entry, dict) and entry.get("Transport Type") not in (None, "LOCAL"):
                        size, time = (_parse_number(entry.get(one)) for one in ("Transit Size(MB)", "Transit Time(ms)"))
                        group = f"{kind} {name.rpartition('@')[2]}"
                        if size and time and size > 0 < time:
                            found.append(Link(group, pair, str(entry["Transport Type"]), size, time * 1000))
    return found


@dataclass(frozen=True, slots=True)
class HostCall:
    """The calls of one function of CANN."""

    name: str  # as in the time line: `AscendCL@aclrtMalloc`
    count: int
    microseconds: float
    longest_us: float


def read_calls(path: Path) -> list[HostCall]:
    """Read ``api_statistic.csv``. Raises TraceError: the file is unreadable or invalid."""
    found: list[HostCall] = []
    for _, row in _read_rows(path, ("API Name", "Time(us)", "Count")):
        time, count, longest = (_parse_number(row.get(name)) for name in ("Time(us)", "Count", "Max(us)"))
        if time is not None and count is not None and len(found) < _MOST_TYPES:
            # The level of the runtime repeats that of AscendCL.
            level = "AscendCL" if (row.get("Level") or "").strip() == "acl" else (row.get("Level") or "").strip()
            if level != "runtime":
                found.append(HostCall(f"{level}@{row['API Name'].strip()}", int(count), time, longest or 0.0))
    return found


@dataclass(frozen=True, slots=True)
class InputQueue:
    """The operator of MindSpore's data pipeline that the device waits for."""

    name: str  # `Map(id=2)`
    workers: int
    empty: float  # share of the time in which the last queue before the device is empty


def read_input_queue(path: Path) -> InputQueue | None:
    """Return the slowest operator of ``minddata_pipeline_summary_*.json``, or of ``minddata_pipeline_raw_*.csv``.

    None if the device does not wait for data.

    From the device to the files, it is the last one whose queue is mostly empty (MindSpore 2.9,
    ``mindspore/profiler/analysis/viewer/ms_minddata_viewer.py``). Raises TraceError: the file is unreadable or invalid.
    """
    too_long = msg("trace.profile.long", limit=_MAX_JSON // 1024**2)
    data = _read_pipeline(path) if path.suffix == ".csv" else read_json(path, _MAX_JSON, too_long, "trace.profile.json")
    names = ("op_ids", "pipeline_ops", "num_workers", "queue_empty_freq_pct", "children_ids")
    columns = [data.get(name) if isinstance(data, dict) else None for name in names]
    rows = zip(*columns, strict=False) if all(isinstance(one, list) for one in columns) else ()
    operators = {row[0]: row[1:] for row in rows if isinstance(row[0], int)}
    starved: list[InputQueue] = []
    at: object = min(operators, default=None)
    while isinstance(at, int) and at in operators:
        name, workers, empty, children = operators.pop(at)
        percent = _parse_number(empty)
        if percent is not None and percent >= 0:  # -1: no queue
            if percent <= limit("queue_empty"):
                break
            first = starved[0].empty if starved else percent / 100
            starved.append(InputQueue(str(name)[:200], int(_parse_number(workers) or 0), first))
        at = children[0] if isinstance(children, list) and children else None
    return starved[-1] if starved else None


def _read_pipeline(path: Path) -> dict[str, list[object]]:
    # The raw table has the usage of queues instead of how often they are empty; at most 10 % is empty, as in MindSpore.
    found: dict[str, list[object]] = {}
    for _, row in _read_rows(path, ("op_id", "op_type", "num_workers", "output_queue_usage_rate", "children_id")):
        number, children = _parse_number(row["op_id"]), re.findall(r"\d{1,9}", row["children_id"])
        usage = _parse_number(row["output_queue_usage_rate"])
        empty = -1 if usage is None else 100 if usage <= limit("queue_used") else 0
        values = (int(number or 0), f"{row['op_type']}(id={row['op_id']})", row["num_workers"], empty)
        for name, value in zip(("op_ids", "pipeline_ops", "num_workers", "queue_empty_freq_pct"), values, strict=True):
            found.setdefault(name, []).append(value)
        found.setdefault("children_ids", []).append([int(child) for child in children])
    return found


def is_point_to_point(name: str) -> bool:
    """Return whether a collective is a send or receive; some exporters list ``hcom_BatchSendRecv`` with them."""
    return any(word in name.lower() for word in ("send", "receive", "recv"))


def _items_of(data: object) -> Iterator[tuple[str, Any]]:
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


def _read_rows(
    path: Path, needed: tuple[str, ...], columns: tuple[str, ...] = ()
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows with their lines; only some columns, if given, as tables of kernels have 50 and gigabytes."""
    try:
        with reading(path), open_text(path, "utf-8-sig", newline="") as file:
            reader = csv.reader(iterate_table_lines(file))
            names = [_RENAMED.get(name.strip(), name.strip()) for name in next(reader, ())]
            missing = [name for name in needed if name not in names]
            if missing:
                hint = msg("trace.profile.columns.hint")
                raise TraceError(msg("trace.profile.columns", missing=", ".join(missing)), hint, path=path)
            wanted = [(place, name) for place, name in enumerate(names) if not columns or name in columns]
            least = max(names.index(name) for name in needed)
            for number, row in enumerate(row for row in reader if row):
                if number >= _MOST_ROWS:
                    return
                row.extend([""] * (least + 1 - len(row)))
                yield reader.line_num, {name: row[place] for place, name in wanted if place < len(row)}
    except csv.Error as error:
        raise TraceError(msg("trace.profile.csv", detail=str(error)), path=path) from error


def _parse_number(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]  # other values raise
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and abs(number) < 1e18 else None  # noqa: PLR2004 - no time is this long
