"""Create and write the folder in which a run is stored."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dryrun.prepare import LoadedConfig
from ms_tune.dryrun.request import PreparedRun
from ms_tune.dryrun.settings import changed_text
from ms_tune.dryrun.stored_runs import MANIFEST, RUNS, STAMP, mark_in_use
from ms_tune.encode import SCHEMA_VERSION, json_text
from ms_tune.errors import RunError, UsageError, reason_of
from ms_tune.native import cache_root
from ms_tune.source.files import diff_lines
from ms_tune.text import msg
from ms_tune.verdict.run_record import FILE, RunRecord, to_json
from ms_tune.version import __version__

if TYPE_CHECKING:
    from ms_tune.dryrun.task import Observer

# Recorded in the manifest; other variables may contain secrets and are omitted.
_RECORDED = re.compile(r"(?:MS|ASCEND|GLOG|HCCL)_\w+|RANK_(?:ID|SIZE)|DEVICE_ID|LD_LIBRARY_PATH|PYTHONPATH|LD_PRELOAD")
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|KEY|CREDENTIAL", re.IGNORECASE)


def create_run_folder(wanted: Path | None, name: str) -> Path:
    """Create the folder that the user names, which must be empty or absent, or a new one in the working folder or cache."""
    if wanted is not None:
        try:
            wanted.mkdir(parents=True, exist_ok=True)
            occupied = any(wanted.iterdir())
        except OSError as error:
            raise UsageError(msg("dryrun.folder.unwritable", folder=wanted, detail=reason_of(error))) from error
        if occupied:
            raise UsageError(msg("dryrun.folder.occupied", folder=wanted), msg("dryrun.folder.occupied.hint"))
        return wanted.resolve()
    parent = Path.cwd() / RUNS
    try:
        parent.mkdir(exist_ok=True)
        return _new_folder(parent, name)
    except OSError:
        parent = cache_root() / RUNS
        parent.mkdir(exist_ok=True)
        return _new_folder(parent, name)


def _new_folder(parent: Path, name: str) -> Path:
    stamp = dt.datetime.now(dt.timezone.utc).strftime(STAMP)
    slug = re.sub(r"[^A-Za-z0-9]+", "-", Path(name).stem).strip("-")[:40] or "run"
    # mkdtemp adds random letters, so that two runs of the same second differ.
    folder = Path(tempfile.mkdtemp(prefix=f"{stamp}-{slug}-", dir=parent))
    folder.chmod(0o755)
    return folder


@contextlib.contextmanager
def report_folder_if_interrupted(folder: Path, observer: Observer) -> Iterator[None]:
    """Mark the folder of a run as in use, and report it if the run is interrupted: its partial output can be read."""
    try:
        with mark_in_use(folder):
            yield
    except KeyboardInterrupt:
        observer.say(msg("dryrun.interrupted", folder=folder))
        raise


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write a JSON file atomically: a reader sees the old file or the new one, never a part."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(file_text(value), encoding="utf-8")
    fresh.replace(path)


def file_text(value: Mapping[str, object]) -> str:
    """Return the text of a JSON file."""
    return json_text(value, indent=2, default=str) + "\n"


@contextlib.contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(msg("dryrun.folder.unwritable", folder=folder, detail=reason_of(error))) from error


def write_manifest(folder: Path, content: Mapping[str, object]) -> None:
    """Write ``manifest.json``."""
    with _write_errors(folder):
        write_json(folder / MANIFEST, content)


def write_run_record(folder: Path, record: RunRecord) -> None:
    """Write the data that other commands need for the same verdict."""
    with _write_errors(folder):
        write_json(folder / FILE, to_json(record))


def make_manifest(command: list[str], environment: Mapping[str, str], extra: Mapping[str, object]) -> dict[str, object]:
    """Return the data needed to repeat the run."""
    recorded = {
        name: value
        for name, value in sorted(environment.items())
        if _RECORDED.fullmatch(name) and not _SECRET.search(name)
    }
    return {SCHEMA_VERSION: 1, "ms_tune": __version__, "command": command, "environment": recorded, **extra}


def write_config(folder: Path, config: LoadedConfig, run: PreparedRun) -> None:
    """Write the user's original config, the changes for the run, and the difference in the format of ``diff -u``."""
    changes = [{"key": change.key, "before": change.before, "after": change.after} for change in run.changes]
    run_text = changed_text(config.source, [(change.key, change.after) for change in run.changes])
    difference = diff_lines(config.original.text, run_text, "a/config.yaml", "b/config.yaml")
    with _write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(config.original.text, encoding="utf-8")
        (folder / "config.diff").write_text("".join(f"{line}\n" for line in difference), encoding="utf-8")
        write_json(folder / "changes.json", {SCHEMA_VERSION: 1, "changes": changes})
