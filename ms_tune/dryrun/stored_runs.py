"""List and remove the folders of dryruns: only those that ms-tune itself created, and none that is in use."""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ms_tune.source.files import read_bytes

RUNS = "ms-tune-runs"
STAMP = "%Y%m%d-%H%M%S"  # the time at which a folder's name begins, in UTC
MANIFEST = "manifest.json"
REPORT = "report.json"
_NAME = re.compile(r"(\d{8}-\d{6})-[A-Za-z0-9-]+-\w{8}", re.ASCII)
_MOST_BYTES = 16 << 20  # of a JSON file
_VERDICTS = ("fits", "tight", "does-not-fit")


class StoredRun(NamedTuple):
    """The folder of a run."""

    folder: Path
    begin: dt.datetime
    bytes: int
    verdict: str | None  # as in `report.json`; None for a sweep, or without one


@contextlib.contextmanager
def mark_in_use(folder: Path) -> Iterator[None]:
    """Keep :func:`remove_run` from removing a folder; where files cannot be locked, nothing does."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def list_runs(places: Iterable[Path]) -> list[StoredRun]:
    """Return the runs in folders named :data:`RUNS`, the oldest first. Unreadable ones are left out."""
    found = []
    for folder in [one for place in places for one in place.glob("*")]:
        name = _NAME.fullmatch(folder.name)
        if name and not folder.is_symlink() and "ms_tune" in _read_object(folder / MANIFEST):
            verdict = _read_object(folder / REPORT).get("verdict")
            with contextlib.suppress(ValueError):  # no date
                begin = dt.datetime.strptime(name[1], STAMP).replace(tzinfo=dt.timezone.utc)
                size = sum(_file_sizes(folder))
                found.append(StoredRun(folder, begin, size, verdict if verdict in _VERDICTS else None))
    return sorted(found, key=lambda run: run.begin)


def remove_run(run: StoredRun) -> bool:
    """Remove the folder of a run and return True; False if it is in use. Raises OSError."""
    with contextlib.ExitStack() as opened:
        for folder in (run.folder, *run.folder.glob("variant_*")):
            handle = os.open(folder, os.O_RDONLY)
            opened.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
        shutil.rmtree(run.folder)
    return True


def _read_object(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        value = json.loads(read_bytes(path, _MOST_BYTES))
        return value if isinstance(value, dict) else {}
    return {}


def _file_sizes(folder: Path) -> Iterator[int]:
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 - of thousands of files
