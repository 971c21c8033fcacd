"""Find the files of a trace: in a folder of one rank, in a folder of ranks, or in the run folder of ``ms-tune dryrun``.

The tracker writes ``memory_block.csv`` into ``rank_<n>/`` once communication is initialized and into the working folder
before (``mem_pool_util.cc``). Folders of earlier ranks remain when a job with fewer ranks runs in the same place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ms_tune.errors import NoTraceError, TraceError
from ms_tune.readers.dry_run import RANK_FILE, is_dry_run_file, is_dry_run_json
from ms_tune.readers.lines import reading
from ms_tune.records import Record
from ms_tune.text import msg

BLOCKS = "memory_block.csv"
_RANK = re.compile(r"rank_?(\d{1,9})")
_DEPTH = 5  # script/job_N/rank_N/process_N/rank_N of `ms-tune dryrun`
_MOST_FOLDERS = 10_000
_STALE = 3600.0  # seconds between the oldest and the newest file of a job's ranks


@dataclass(frozen=True, slots=True)
class RankFiles:
    """The files of one rank, with None for absent ones."""

    rank: int | None  # its number; None if no folder name shows it
    blocks: Path  # `memory_block.csv`
    tasks: Path | None  # `task.csv`
    graph: Path | None  # `tracker_graph.ir`
    log: Path | None  # the log of the process
    tensors: Path | None  # `tensors.json` of `ms-tune dryrun`
    collectives: Path | None  # `comm_execute_order.csv`
    report: Path | None = None  # the JSON file of a HyperParallel dry-run


class TraceFolder(Record):
    """The ranks of a run, by number, and whether some of them look older than the others."""

    ranks: tuple[RankFiles, ...]
    stale: bool


def find_trace(path: Path) -> TraceFolder:
    """Return the files of every rank at a place: a ``memory_block.csv``, its folder, or a folder above it."""
    if path.is_file():
        rows = path.with_suffix(".csv")  # smaller than the JSON file next to it
        chosen = rows if is_dry_run_json(path) and rows.is_file() else path
        return TraceFolder((_rank_files(chosen),), stale=False)
    with reading(path):
        found = sorted(_find_block_files(path, _DEPTH, [0])) if path.is_dir() else []
    if not found:
        packed = path / f"{BLOCKS}.gz"
        hint = msg("trace.packed.hint", path=packed) if packed.is_file() else msg("trace.not-tracker.hint")
        if path.is_dir():
            raise NoTraceError(msg("trace.folder.empty"), hint, path=path)
        raise TraceError(msg("trace.special" if path.exists() else "trace.folder.absent"), hint, path=path)
    ranks = sorted((_rank_files(file) for file in found), key=lambda files: (files.rank or 0, str(files.blocks)))
    times = [files.blocks.stat().st_mtime for files in ranks]
    return TraceFolder(tuple(ranks), stale=max(times) - min(times) > _STALE)


def is_dry_run(path: Path) -> bool:
    """Return whether a trace is of a HyperParallel dry-run; False if there is none."""
    try:
        return any(is_dry_run_file(files.blocks) for files in find_trace(path).ranks[:1])
    except TraceError:
        return False


def _find_block_files(folder: Path, depth: int, seen: list[int]) -> Iterator[Path]:
    entries = sorted(folder.iterdir())
    dry_runs: dict[str, Path] = {}  # by rank; its CSV file is smaller than its JSON file
    for file in entries:
        found = RANK_FILE.fullmatch(file.name)
        if file.name == BLOCKS and file.is_file():
            yield file
        elif found and file.is_file() and (file.suffix == ".csv" or is_dry_run_json(file)):
            dry_runs[found[1]] = min(file, dry_runs.get(found[1], file), key=lambda path: path.suffix)
    yield from dry_runs.values()
    if not depth:
        return
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink() and not entry.name.startswith("."):
            seen[0] += 1
            if seen[0] > _MOST_FOLDERS:
                return
            yield from _find_block_files(entry, depth - 1, seen)


def _rank_files(blocks: Path) -> RankFiles:
    folder = blocks.parent
    named = RANK_FILE.fullmatch(blocks.name)
    numbers = (named, *(_RANK.fullmatch(one.name) for one in (folder, folder.parent)))
    beside = [blocks.with_suffix(".json"), *([folder / f"rank_{named[1]}.json"] if named else [])]
    # `ms-tune dryrun` keeps the log and the list of tensors in rank_N/, and the tracker may write to rank_N/rank_N/.
    near = [folder, *([folder.parent] if _RANK.fullmatch(folder.name) else [])]
    logs = [place / name for place in near for name in ("log.txt", "log")]
    logs += [folder.parent / f"{folder.name}.log"]
    order = [place / "execute_order" / "comm_execute_order.csv" for place in near]
    order += [place / folder.name / "execute_order" / "comm_execute_order.csv" for place in near[1:]]
    return RankFiles(
        rank=next((int(match[1]) for match in numbers if match), None),
        blocks=blocks,
        tasks=_first_file([folder / "task.csv"]),
        graph=_first_file([folder / "tracker_graph.ir"]),
        log=_first_file(logs),
        tensors=_first_file([place / "tensors.json" for place in near]),
        collectives=_first_file(order),
        report=next((path for path in beside if path.is_file() and is_dry_run_json(path)), None),
    )


def _first_file(candidates: list[Path]) -> Path | None:
    return next((path for path in candidates if path.is_file()), None)
