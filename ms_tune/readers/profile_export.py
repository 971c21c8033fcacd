"""Find the ranks of a profile and read each: ``*_ascend_pt`` and ``*_ascend_ms`` folders, msprof's, or a cluster's table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeVar

from ms_tune.errors import TraceError, nearby
from ms_tune.readers.lines import reading
from ms_tune.readers.plain_pickle import no_collection
from ms_tune.readers.profile_tables import (
    HostCall,
    InputQueue,
    Kernels,
    Link,
    ProfileCollective,
    StepRow,
    read_calls,
    read_collectives,
    read_input_queue,
    read_kernels,
    read_links,
    read_steps,
)
from ms_tune.readers.trace_events import ProfileEvents, StoredEvents
from ms_tune.records import Record
from ms_tune.source.files import open_text
from ms_tune.text import msg

Result = TypeVar("Result")

_BLOCK = 1024**2  # characters per read
_MOST_REST = 64 * 1024**2  # maximum characters of one event
_BETWEEN = ("}, {", "},{", "},\n")  # possible text between two events
_DECODER = json.JSONDecoder()
OUTPUT = "ASCEND_PROFILER_OUTPUT"
STEPS, KERNELS = "step_trace_time.csv", "kernel_details.csv"
EVENTS, COMMUNICATION = "trace_view.json", "communication.json"
CLUSTER = "cluster_step_trace_time.csv"
LINKS, QUEUES = "communication_matrix.json", "minddata_pipeline_summary.json"
RAW_QUEUES = "minddata_pipeline_raw.csv"
CALLS = "api_statistic.csv"
# Other names, such as those of msprof's own export.
_MSPROF = {
    QUEUES: "minddata_pipeline_summary_*.json",
    RAW_QUEUES: "minddata_pipeline_raw_*.csv",
    CALLS: "api_statistic_*.csv",
    KERNELS: "op_summary*.csv",
    EVENTS: "msprof_*.json",
}
_DEPTH = 4
_MOST_FOLDERS = 20_000
_MOST_RANKS = 4096
_MOST_PEERS = 1_000_000
_MAX_INFO = 16 * 1024**2
_RANK = re.compile(r"profiler_info_(\d{1,6})\.json|rank_?(\d{1,6})")
_LEVEL = re.compile(r"[Ll]evel_?(\d|[Nn]one)")


@no_collection()
def read_events(path: Path, on_bytes: Callable[[int], None] = lambda _count: None) -> ProfileEvents:
    """Read the events of a ``trace_view.json`` of any size that are needed to explain gaps.

    torch_npu (``_ascend_pt``) and MindSpore (``_ascend_ms``) write one list in one line, older versions an object with
    ``traceEvents``. It is read in blocks of whole events. Stored are the intervals of "Overlap Analysis", collectives, the
    flows from a launch on the host to its start on the device, and host events that are long enough to cover a gap.
    """
    kept = StoredEvents()
    with reading(path), open_text(path) as file:
        _read_all(file, kept, on_bytes, path)
    if not kept.count and not kept.truncated:
        raise TraceError(msg("trace.profile.empty"), path=path)
    return kept.events_in_order()


def _read_all(file: TextIO, kept: StoredEvents, on_bytes: Callable[[int], None], path: Path) -> None:
    rest, begun = "", False
    while chunk := file.read(_BLOCK):
        on_bytes(len(chunk))
        rest += chunk
        if not begun:
            start = _first_event(rest)
            if start is None:
                if len(rest) > _BLOCK // 4:
                    raise TraceError(msg("trace.profile.not-trace"), path=path)
                continue
            rest, begun = rest[start:], True
        rest = _take_events(rest, kept)
        if len(rest) > _MOST_REST:
            raise TraceError(msg("trace.profile.long-event"), path=path)
    if not begun:
        if rest.strip():
            raise TraceError(msg("trace.profile.not-trace"), path=path)
        return
    kept.truncated = not _take_events(rest, kept).lstrip().startswith("]")


def _first_event(text: str) -> int | None:
    stripped = text.lstrip()
    if stripped.startswith("["):
        return text.index("[") + 1
    at = text.find('"traceEvents"')
    bracket = text.find("[", at) if stripped.startswith("{") and at > 0 else -1
    return bracket + 1 if bracket >= 0 else None


def _take_events(text: str, kept: StoredEvents) -> str:
    end = max(map(text.rfind, _BETWEEN)) + 1
    if end > 1 and _taken_together(text[:end].lstrip().removeprefix(","), kept):
        return text[end:]
    at = 0
    while True:
        while at < len(text) and text[at] in " ,\r\n\t":
            at += 1
        if at >= len(text) or text[at] != "{":
            return text[at:]
        try:
            event, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return text[at:]
        kept.take(event)


def _taken_together(events: str, kept: StoredEvents) -> bool:
    # Process many events at once; False, without any processed, if an apparent end of an event is inside a text.
    try:
        found = json.loads(f"[{events}]")
    except (ValueError, RecursionError):
        return False
    for event in found:
        if isinstance(event, dict):
            kept.take(event)
    return True


class RankProfile(Record):
    """The export of one rank, with None or empty values for absent parts."""

    folder: Path  # its `ASCEND_PROFILER_OUTPUT`
    rank: int | None  # its number; None if no name shows it
    level: str  # profiling level: `0`, `1`, `2`, `none`; empty if unknown
    stacks: bool  # whether Python stacks were recorded, which slows the host down
    # Whether MindSpore exported it. Its table differs (MindSpore 2.9,
    # mindspore/profiler/analysis/viewer/ascend_step_trace_time_viewer.py): Stage is not a step but the time from the
    # first to the last collective without sends and receives; Bubble is all sends and receives, including hidden ones.
    mindspore: bool
    peers: frozenset[int]  # the ranks of its groups, from `profiler_metadata.json`
    steps: tuple[StepRow, ...]  # rows of its step table
    kernels: Kernels | None  # its kernels
    events: ProfileEvents | None  # events of its time line
    collectives: tuple[ProfileCollective, ...]  # its collectives
    links: tuple[Link, ...]  # its links to other ranks
    input_queue: InputQueue | None  # the slowest operator of MindSpore's data pipeline
    calls: tuple[HostCall, ...]  # the host's calls to CANN
    broken: tuple[TraceError, ...]  # errors of unreadable files


def contains_profile(path: Path) -> bool:
    """Return whether a path is an export, a cluster's table, or a folder above one."""
    if path.is_file():
        return path.name == CLUSTER
    return path.is_dir() and next(_find_exports(path), None) is not None


def find_profiles(path: Path) -> list[Path]:
    """Return the exports below a folder, or a cluster's table. Raises TraceError: not found, or too many."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise TraceError(msg("trace.folder.absent"), nearby(path), path=path)
    found = sorted(_find_exports(path))
    # Beside the framework's export may lie that of msprof, which it was made of.
    found = [folder for folder in found if is_framework_export(folder)] or found
    if len(found) > _MOST_RANKS:
        raise TraceError(msg("trace.profile.many", limit=_MOST_RANKS), path=path)
    if found:
        return found
    for table in (path / CLUSTER, path / "cluster_analysis_output" / CLUSTER):
        if table.is_file():
            return [table]
    raise TraceError(msg("trace.profile.none"), msg("trace.profile.none.hint"), path=path)


def _find_exports(path: Path) -> Iterator[Path]:
    todo, seen = [(path, 0)], 0
    while todo:
        folder, depth = todo.pop()
        seen += 1
        if seen > _MOST_FOLDERS:
            raise TraceError(msg("trace.profile.folders", limit=_MOST_FOLDERS), path=path)
        if any(export_files(folder, name) for name in (STEPS, KERNELS, EVENTS)):
            yield folder
        elif depth < _DEPTH:
            with reading(folder):
                todo += [(one, depth + 1) for one in folder.iterdir() if one.is_dir() and not one.is_symlink()]


def export_files(folder: Path, name: str) -> list[Path]:
    """Return the files with one kind of data: the file of a framework's export, or those of msprof's.

    Of several exports of one capture the last is taken; slices of one export (``op_summary_slice_0_...``) all.
    """
    if (folder / name).is_file():
        return [folder / name]
    with reading(folder):
        found = sorted(folder.glob(_MSPROF[name])) if name in _MSPROF else []
    return [file for file in found if "_slice_" in file.name] or found[-1:]


def is_framework_export(folder: Path) -> bool:
    """Return whether MindSpore or torch_npu exported a folder, not msprof alone."""
    return any((folder / name).is_file() for name in (STEPS, KERNELS, EVENTS))


def read_rank(folder: Path, on_bytes: Callable[[int], None] = lambda _count: None) -> RankProfile:
    """Read one rank's export; an unreadable file does not prevent reading the others."""
    broken: list[TraceError] = []
    rank, level, stacks, mindspore = _describe_export(folder)

    def read(name: str, reader: Callable[..., Result]) -> Result | None:
        try:
            files = export_files(folder, name)
            return reader(*files) if files else None
        except TraceError as error:
            broken.append(error)
            return None

    steps = read(STEPS, read_steps) or ()
    kernels = read(KERNELS, partial(read_kernels, split=not steps))
    collectives = read(COMMUNICATION, read_collectives) or ()
    events = read(EVENTS, lambda file, *_: read_events(file, on_bytes))
    links = read(LINKS, read_links) or ()
    queue = read(QUEUES if export_files(folder, QUEUES) else RAW_QUEUES, read_input_queue)
    calls = read(CALLS, read_calls) or ()
    parts = (tuple(steps), kernels, events, tuple(collectives), tuple(links), queue, tuple(calls), tuple(broken))
    return RankProfile(folder, rank, level, stacks, mindspore, _read_peers(folder), *parts)


def _describe_export(folder: Path) -> tuple[int | None, str, bool, bool]:
    rank, level, stacks = None, "", False
    above = _folder_above(folder)
    mindspore = above.name.endswith("_ascend_ms")
    for file in sorted(above.glob("profiler_info*.json"))[:1]:
        match = _RANK.search(file.name)
        rank = int(match[1]) if match and match[1] else None
        text = _read_text(file)
        mindspore = mindspore or '"ms_profiler_info"' in text
        found = _LEVEL.search(text)
        level = found[1].lower() if found else ""
        stacks = bool(re.search(r'"with_stack"\s*:\s*true', text))
        info = _parse_object(text)
        if rank is None and isinstance(info.get("rank_id"), int):
            rank = info["rank_id"]
    if rank is None:
        names = _RANK.search(above.name)
        rank = int(names[2]) if names and names[2] else None
    return rank, level, stacks, mindspore


def _folder_above(folder: Path) -> Path:
    return folder.parent if folder.name == OUTPUT else folder


def _read_peers(folder: Path) -> frozenset[int]:
    groups = _parse_object(_read_text(_folder_above(folder) / "profiler_metadata.json")).get("parallel_group_info")
    lists = (
        [one.get("global_ranks") for one in groups.values() if isinstance(one, dict)]
        if isinstance(groups, dict)
        else []
    )
    each = (rank for ranks in lists if isinstance(ranks, list) for rank in ranks)
    return frozenset(rank for rank in each if isinstance(rank, int) and 0 <= rank < _MOST_PEERS)


def _parse_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _read_text(file: Path) -> str:
    try:
        with open_text(file) as opened:
            return opened.read(_MAX_INFO)
    except OSError:
        return ""
