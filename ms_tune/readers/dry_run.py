"""Read the files of HyperParallel's dry-runs: ``rank_<r>_memory.csv``, and a JSON file with the same rows and their limits.

The rows are logical tensors of PyTorch, not blocks of an allocator: no address is used twice, and ``actual_peak_memory``
is the running peak of live bytes. Of both formats (``schema_version`` 2 and 3), the phases in ``task_name`` are the mark;
the pool's name is not, since one of them borrows it from MindSpore (``platform/torch/dry_run.py`` at 5421c36d).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from ms_tune.errors import TraceError
from ms_tune.readers.lines import iterate_lines, read_json, reading
from ms_tune.records import Record
from ms_tune.source.files import open_bytes
from ms_tune.text import msg
from ms_tune.units import MIB

PHASES_OF_DRY_RUN = frozenset({"initialization", "forward", "backward", "recompute", "optimizer"})
RANK_FILE = re.compile(r"rank_?(\d{1,9})(?:_memory\.csv|(?:_memory)?\.json)")
_MOST_BYTES = 512 * MIB
_HEAD = 4096  # bytes in which the JSON's first key is expected
_WIDEST, _MOST_TEXTS, _LONGEST = 1_000_000, 20, 400  # ranks of a degree; texts that are kept, and characters of each


class DryRunReport(Record):
    """The JSON file of one rank, without its rows."""

    ranks: int  # of the job
    parallel: Mapping[str, int]  # degrees by name, such as `dp_shard` and `tp`
    stages: tuple[int, ...]  # numbers of the pipeline stages of the rank
    limitations: tuple[str, ...]  # memory that it leaves out, in its own words
    failure: str  # the stage and error at which it ended; empty if it did not fail
    cuda: bool  # whether it is for a GPU


def is_dry_run_json(path: Path) -> bool:
    """Return whether a file seems to be the JSON file of a dry-run."""
    if path.suffix != ".json" or not path.is_file():
        return False
    with reading(path), open_bytes(path) as file:
        head = file.read(_HEAD)
    return head.lstrip()[:1] == b"{" and b'"schema_version"' in head and b'"status"' in head


def is_dry_run_file(path: Path) -> bool:
    """Return whether the first row of a file is that of a dry-run."""
    if path.suffix != ".csv" or not path.is_file():
        return is_dry_run_json(path)
    with reading(path), open_bytes(path) as file:
        lines = iterate_lines(file)
        first, second = ((next(lines, (0, "", True))[1] or "") for _ in range(2))
    row = next(csv.DictReader([first, second]), {}) if len(first) + len(second) < _HEAD * 16 else {}
    return row.get("task_name") in PHASES_OF_DRY_RUN


def read_dry_run_report(path: Path) -> DryRunReport:
    """Read the JSON file of one rank. Values of unexpected types are left out."""
    content = _read_object(path)
    metadata, error = _object_in(content, "metadata"), _object_in(content, "error")
    degrees = {str(name): degree for name, degree in _object_in(metadata, "parallel").items() if type(degree) is int}
    stages, texts = metadata.get("local_stage_indices"), content.get("limitations")
    device = metadata.get("target_device", metadata.get("device_type"))
    failed = [str(part)[:_LONGEST] for part in (content.get("stage"), error.get("type"), error.get("message")) if part]
    ranks = metadata.get("world_size")
    return DryRunReport(
        ranks if type(ranks) is int else 1,
        {name: min(degree, _WIDEST) for name, degree in degrees.items() if name.isidentifier()},
        tuple(stage for stage in stages if type(stage) is int) if isinstance(stages, list) else (),
        tuple(text[:_LONGEST] for text in texts[:_MOST_TEXTS] if isinstance(text, str))
        if isinstance(texts, list)
        else (),
        (": ".join(failed) or "?") if content.get("status") == "error" else "",
        device == "cuda",
    )


def open_rows(path: Path) -> BinaryIO:
    """Open the rows of a trace: a CSV file, or the ``memory_blocks`` of a JSON file as the same text."""
    if path.suffix != ".json":
        return open_bytes(path)
    rows = _read_object(path).get("memory_blocks")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise TraceError(msg("trace.dry-run.no-rows"), path=path)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return io.BytesIO(text.getvalue().encode())


def _cell(value: object) -> object:
    if value is None or isinstance(value, bool):
        return "" if value is None else int(value)
    return " ".join(str(value).splitlines())


def _read_object(path: Path) -> Mapping[str, object]:
    content = read_json(
        path, _MOST_BYTES, msg("trace.dry-run.too-large", most=f"{_MOST_BYTES // MIB} MiB"), "trace.dry-run.not-json"
    )
    return content if isinstance(content, dict) else {}


def _object_in(content: Mapping[str, object], key: str) -> Mapping[str, object]:
    found = content.get(key)
    return found if isinstance(found, dict) else {}
