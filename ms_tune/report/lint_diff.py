"""What fixes would change, as a unified diff that ``patch`` and ``git apply`` take."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from ms_tune.report.console import shown_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.lint.result import LintReport
    from ms_tune.report.console import Console

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_NO_NEWLINE = "\\ No newline at end of file"


def write_diff(report: LintReport, console: Console) -> int:
    """Write a diff for every file that fixes change; returns how many there are."""
    changed = 0
    for file in report.files:
        if file.original is not None:
            changed += 1
            for line in _diff(file.original, file.text, shown_path(file.path)):
                console.write_whole(console.paint(line, _COLOURS[line[0]]) if line[:1] in _COLOURS else line)
    console.note(console.text("lint.diff", count=report.summary.fixed, files=changed))
    return changed


def _diff(old: str, new: str, name: str) -> Iterator[str]:
    for line in difflib.unified_diff(_lines(old), _lines(new), f"a/{name}", f"b/{name}"):
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield _NO_NEWLINE


def _lines(text: str) -> list[str]:
    """Lines as ``patch`` sees them: a carriage return belongs to its line."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
