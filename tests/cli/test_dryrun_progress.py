"""What is told on standard error while processes run."""

from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING

from ms_tune.cli import dryrun_progress
from ms_tune.cli.dryrun_progress import DryrunProgress
from ms_tune.dryrun.launcher import Ended
from ms_tune.dryrun.task import State, Task
from ms_tune.render.console import Console
from ms_tune.texts import Language, msg

if TYPE_CHECKING:
    import pytest


class Stream(io.StringIO):
    """Standard error, perhaps of a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def task(stage: int) -> Task:
    return Task(f"rank_{stage}", {}, (), stage, 4, 1, 60, 0, stage, 2)


def told(patch: pytest.MonkeyPatch, *, terminal: bool) -> str:
    stream = Stream(terminal=terminal)
    patch.setattr(sys, "stderr", stream)
    patch.setattr(dryrun_progress, "_columns", lambda: 79)
    with DryrunProgress(Console(Language.EN)) as progress:
        progress.say(msg("dryrun.build.wait"))
        progress.begin([task(0), task(1), task(2)])
        for seconds in (0.0, 0.4, 1.2):
            progress.state(task(0), State("compile", 0, 0, None, seconds))
            progress.state(task(1), State("step", 1, 2, None, seconds))
        progress.state(task(1), State("write", 0, 0, 12345, 2.0))
        progress.end(task(0), Ended(0, 3.0))
    return stream.getvalue()


def screens(text: str) -> list[list[str]]:
    """What a terminal shows after each erasing: carriage return, line feed, cursor up, erase to the end."""
    shown, row, lines = [], 0, [""]
    for part in re.split(r"(\r|\n|\x1b\[\d+A|\x1b\[J)", text):
        if part == "\n":
            row += 1
            lines[row:] = lines[row:] or [""]
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
            assert row >= 0
        elif part == "\x1b[J":
            shown.append(list(lines))
            lines[row:] = [""]
        elif part not in ("", "\r"):
            lines[row] = part
    return [*shown, lines]


def test_a_terminal_shows_every_running_process_and_is_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screens(told(monkeypatch, terminal=True))
    last = next(lines for lines in reversed(shown) if len(lines) == 3)
    assert [line.split(":")[0] for line in last] == [
        "stage 0, 2 layer(s)",
        "stage 1, 2 layer(s)",
        "0 of 3 processes ended, 1 waiting",
    ]
    assert "12,345 blocks" in last[1]
    assert shown[-1] == [""]


def test_elsewhere_every_phase_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = told(monkeypatch, terminal=False).splitlines()
    assert len(lines) == len(set(lines)) == 5
    assert lines[1] == "stage 0, 2 layer(s): simulating: compiling the graph … 0 s"
    assert lines[-1] == "stage 0, 2 layer(s): ended after 3 s"
