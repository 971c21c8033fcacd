"""One screen about a job as annotations of GitHub Actions: what a change did to its memory, and the findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.diagnostics import Severity
from ms_tune.report.check_words import against, memory, sentence
from ms_tune.report.console import shown_path
from ms_tune.report.github import annotation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ms_tune.report.console import Console
    from ms_tune.workflows.check.result import Overview

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_TITLE = "ms-tune check"
_OUTCOMES = {"over": "error", "still": "error", "tight": "warning", "more": "notice", "less": "notice"}


def write_github(overviews: Sequence[Overview], console: Console) -> None:
    """One workflow command for the memory of each file, and one for each finding, the worst first."""
    for one in overviews:
        for line in (*_memory(one, console), *_matters(one, console)):
            console.write_whole(line)


def _memory(one: Overview, console: Console) -> Iterator[str]:
    found = one.against
    if found is not None:
        line = found.blame.line if found.blame is not None else 1
        yield annotation(_OUTCOMES[found.outcome], _place(one.path, line), _TITLE, against(found, console))
        if found.is_short:
            return
    told = memory(one)
    if told is not None and one.is_over:
        yield annotation("error", _place(one.path, 1), _TITLE, console.say(told))


def _matters(one: Overview, console: Console) -> Iterator[str]:
    for matter in one.matters:
        title = f"{matter.id} {matter.name}".strip() or _TITLE
        yield annotation(
            _LEVELS[matter.severity], _place(matter.path, matter.line or 1), title, sentence(matter, console)
        )


def _place(path: Path, line: int) -> dict[str, object]:
    return {"file": shown_path(path), "line": line}
