"""Define the fuzz targets: every reader, and the complete way from damaged files to the report.

A target takes a folder with the files in it. It may raise only :class:`~ms_tune.errors.MsTuneError`, and its result must be
consistent; an :class:`AssertionError` states the inconsistency.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ms_tune import analyse_profiles, measure_runs
from ms_tune.encode import as_json
from ms_tune.errors import MsTuneError
from ms_tune.footprint.report import MemoryRequest, analyse_memory
from ms_tune.metrics.result import MetricsRequest
from ms_tune.readers.oom_log import read_memory_failures
from ms_tune.readers.runtime_log import read_communication_order, read_runtime_log
from ms_tune.readers.tensors import read_tensor_list, read_tracker_graph
from ms_tune.readers.tracker_tables import read_block_table, read_tasks
from ms_tune.report import memory_json, memory_text, metrics, profile
from ms_tune.report.console import Console
from ms_tune.report.memory_export import write_blocks, write_perfetto, write_snapshot
from ms_tune.report.memory_html import report_html
from ms_tune.report.profile import report_html as profile_html
from ms_tune.text import Language
from tests.readers.rows import read_memory_block, table_of

if TYPE_CHECKING:
    from ms_tune.footprint.result import MemoryReport


@dataclass(frozen=True, slots=True)
class Target:
    """A reader to fuzz.

    Attributes:
        files: The files that it reads, any of which may be damaged.
        run: A function that reads them in a folder.
    """

    files: tuple[str, ...]
    run: Callable[[Path], object]


def survives(target: Target, folder: Path) -> str:
    """Run a target; the id of the reason for which it refuses the files, or ``read``."""
    try:
        target.run(folder)
    except MsTuneError as error:
        return error.message.id
    return "read"


def _blocks(folder: Path) -> None:
    path = folder / "memory_block.csv"
    table = read_block_table(path)
    rows = sum(1 for line in path.read_bytes().split(b"\n") if line.strip()) - 1
    assert len(table) + table.dropped_count == rows, "rows are neither kept nor refused"
    assert len(set(table.line.tolist())) == len(table), "a row is kept twice"
    alone = table_of(read_memory_block(path))
    assert (table.line == alone.line).all(), "the two readers keep different rows"
    assert (table.size == alone.size).all(), "the two readers read different sizes"
    assert table.dropped == alone.dropped, "the two readers refuse different rows"


def _tasks(folder: Path) -> None:
    path = folder / "task.csv"
    tasks = read_tasks(path)
    rows = sum(1 for line in path.read_bytes().split(b"\n") if line.strip()) - 1
    assert len(tasks) + tasks.dropped_count == rows, "rows are neither kept nor refused"
    assert (np.diff(tasks.stamp) >= 0).all(), "not sorted"


def _graph(folder: Path) -> None:
    graph = read_tracker_graph(folder / "tracker_graph.ir")
    assert all(tensor.bytes is None or tensor.bytes >= 0 for tensor in graph.tensors.values())


def _report(folder: Path) -> None:
    report = analyse_memory(folder, MemoryRequest(), lambda _done, _total: None)
    for rank in report.ranks:
        assert sum(rank.peak.contents.values()) == rank.curve.peak_bytes, "the categories do not add up to the peak"
        assert rank.map.largest_hole <= rank.map.free_bytes
        assert rank.lifetimes.peak_if_freed_after_last_use <= rank.curve.peak_bytes, (
            "an earlier release raises the peak"
        )
    for language in Language:
        console = Console(language)
        json.dumps(as_json(memory_json.report_json(report, 10), language))
        with redirect_stdout(io.StringIO()):
            memory_text.show_report(report, console, 10)


def _outputs(folder: Path) -> None:
    report = analyse_memory(folder, MemoryRequest(), lambda _done, _total: None)
    page = report_html(report, None, Language.EN)
    page.encode()
    _export(report)


def _export(report: MemoryReport) -> None:
    text = io.StringIO()
    write_perfetto(text, report)
    json.loads(text.getvalue())
    for rank in report.ranks:
        write_snapshot(io.BytesIO(), rank)
        write_blocks(io.StringIO(), rank, rank.peak, header=True)


def _metrics(folder: Path) -> None:
    report = measure_runs(folder / "train.log", request=MetricsRequest(cards=8, tokens=64, chip="910B2"))
    for run in report.runs:
        assert run.steps > 0, "a run without a step"
        assert run.times.median is None or 0 < run.times.median < 1e7, "a step of no time"
        mfu = run.value("mfu")
        assert mfu is None or 0 <= mfu <= 1, "more than the peak"
    for language in Language:
        console = Console(language)
        json.dumps(as_json(metrics.report_json(report), language), allow_nan=False)
        with redirect_stdout(io.StringIO()):
            metrics.show_report(report, console)
            metrics.show_summary(report, None, console)


def _failures(folder: Path) -> None:
    report = read_memory_failures([folder / "oom.log"])
    for failure in report.failures:
        for amount in (failure.outside_bytes, failure.available_bytes, failure.short_bytes):
            assert amount is None or amount >= 0, "less than nothing"
    for language in Language:
        console = Console(language)
        json.dumps(as_json(memory_json.failures_json(report, folder), language), allow_nan=False)
        with redirect_stdout(io.StringIO()):
            memory_text.show_failures(report, console, verbose=True)


def _profile(folder: Path) -> None:
    report = analyse_profiles(folder)
    whole = sum(report.shares.values())
    assert not report.shares or abs(whole - 1) < 1e-6, "the shares do not add up"
    for language in Language:
        console = Console(language)
        json.dumps(as_json(profile.report_json(report, 10), language), allow_nan=False)
        profile_html(report, 10, language).encode()
        with redirect_stdout(io.StringIO()):
            profile.show_report(report, 10, console)
            profile.show_summary(report, console)


_ALL = ("memory_block.csv", "task.csv", "tracker_graph.ir", "log", "tensors.json", "comm_execute_order.csv")

TARGETS: Mapping[str, Target] = {
    "memory_block": Target(("memory_block.csv",), _blocks),
    "task": Target(("task.csv",), _tasks),
    "tracker_graph": Target(("tracker_graph.ir",), _graph),
    "comm_execute_order": Target(
        ("comm_execute_order.csv",), lambda folder: read_communication_order(folder / "comm_execute_order.csv")
    ),
    "runtime_log": Target(("log",), lambda folder: read_runtime_log(folder / "log")),
    "tensor_list": Target(("tensors.json",), lambda folder: read_tensor_list(folder / "tensors.json")),
    "report": Target(_ALL, _report),
    "outputs": Target(_ALL, _outputs),
    "oom_log": Target(("oom.log",), _failures),
    "training_log": Target(("train.log",), _metrics),
    "profile": Target(("trace_view.json", "step_trace_time.csv", "kernel_details.csv", "communication.json"), _profile),
}
