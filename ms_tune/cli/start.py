"""Describe the folder where ``ms-tune`` runs without arguments, and name the first command to try there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ms_tune.errors import shell_line
from ms_tune.facts.launchers import is_launcher, launcher_of_module
from ms_tune.lint.runner import SKIPPED_FOLDERS, looks_like_a_config
from ms_tune.report.console import Console
from ms_tune.source import SCRIPTS
from ms_tune.source.files import read_bytes

# A home folder can have a million files: entries looked at, files read, bytes read of each.
_MOST_ENTRIES, _MOST_FILES, _MOST_BYTES = 5_000, 200, 64 * 1024
_DEEPEST = 2  # folders below this one
_COMMANDS = {"configs": "check", "scripts": "check", "logs": "metrics", "profiles": "profile"}  # in order of preference
_PROFILES = ("_ascend_pt", "_ascend_ms")  # folders of Ascend's profilers


def describe_folder(folder: Path, console: Console) -> str:
    """Return a sentence about the jobs in a folder; an empty text if there are none."""
    found: dict[str, list[Path]] = {kind: [] for kind in _COMMANDS}
    left, files = _MOST_ENTRIES, _MOST_FILES
    for entry in _walk(folder):
        left -= 1
        files -= entry.suffix in (".yaml", ".yml", *SCRIPTS)
        if not (left and files):
            break
        kind = _kind_of(entry)
        if kind:
            found[kind].append(entry.relative_to(folder))
    best = next((kind for kind in found if found[kind]), None)
    if best is None:
        return ""
    counts = [console.text(f"start.{kind}", count=len(paths)) for kind, paths in found.items() if paths]
    some = "start.here" if left and files else "start.among"
    command = shell_line("ms-tune", _COMMANDS[best], str(found[best][0]))
    return console.text(some, counts=console.listed(counts), command=command)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield files and folders, level by level; links, hidden and installed ones are left out."""
    level = [folder]
    for _ in range(_DEEPEST + 1):
        below: list[Path] = []
        for here in level:
            try:
                with os.scandir(here) as entries:
                    for entry in sorted(_limit(entries), key=lambda one: one.name):
                        if entry.name.startswith(".") or entry.is_symlink() or entry.name in SKIPPED_FOLDERS:
                            continue
                        yield Path(entry.path)
                        if entry.is_dir():
                            below.append(Path(entry.path))
            except OSError:  # it may not be read, or was removed meanwhile
                continue
        level = below


def _limit(entries: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    return (entry for entry, _ in zip(entries, range(_MOST_ENTRIES), strict=False))


def _kind_of(path: Path) -> str:
    if path.suffix == ".log" and path.is_file():
        return "logs"
    if path.name.endswith(_PROFILES):
        return "profiles"
    if path.suffix not in (".yaml", ".yml", *SCRIPTS) or not path.is_file():
        return ""
    try:
        content = read_bytes(path, _MOST_BYTES)
    except OSError:
        return ""
    if path.suffix not in SCRIPTS:
        return "configs" if looks_like_a_config(path, content) else ""
    words = content.decode("utf-8", "replace").split()
    starts = any(is_launcher(word.rpartition("/")[2]) or launcher_of_module(word) for word in words)
    return "scripts" if starts else ""
