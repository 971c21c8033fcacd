"""Test the output on standard error while processes run."""

from __future__ import annotations

import io
import re
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.cli import dryrun_progress
from ms_tune.cli.dryrun_progress import DryrunProgress, Pace
from ms_tune.dryrun.launcher import ProcessEnd
from ms_tune.dryrun.task import Task, TaskState
from ms_tune.report.console import Console
from ms_tune.text import Language, msg

if TYPE_CHECKING:
    import pytest


class Stream(io.StringIO):
    """A replacement of standard error, optionally a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def task(stage: int) -> Task:
    return Task(f"rank_{stage}", {}, (), stage, 4, 1, 60, 0, stage, 2)


def show_progress(patch: pytest.MonkeyPatch, *, terminal: bool) -> str:
    stream = Stream(terminal=terminal)
    patch.setattr(sys, "stderr", stream)
    patch.setattr(dryrun_progress, "width_of", lambda _stream: 80)
    with DryrunProgress(Console(Language.EN)) as progress:
        progress.say(msg("dryrun.build.wait"))
        progress.begin([task(0), task(1), task(2)])
        for seconds in (0.0, 0.4, 1.2):
            progress.state(task(0), TaskState("compile", 0, 0, None, seconds))
            progress.state(task(1), TaskState("step", 1, 2, None, seconds))
        progress.state(task(1), TaskState("write", 0, 0, 12345, 2.0))
        progress.end(task(0), ProcessEnd(0, 3.0))
    return stream.getvalue()


def screens(text: str) -> list[list[str]]:
    """Split the output of a terminal at each erasing: carriage return, line feed, cursor up, erase to the end."""
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
    shown = screens(show_progress(monkeypatch, terminal=True))
    last = next(lines for lines in reversed(shown) if len(lines) == 4)
    assert [line.split(":")[0] for line in last] == [
        "stage 0, 2 layers",
        "stage 1, 2 layers",
        "0 of 3 runs done, 1 waiting",
        "about 5 s left",
    ]
    assert "12,345 blocks" in last[1]
    assert shown[-1] == [""]


def test_elsewhere_a_short_run_shows_what_is_not_about_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert show_progress(monkeypatch, terminal=False).splitlines() == [
        "waiting for another process that builds the same stubs …"
    ]


def test_elsewhere_there_is_at_most_a_line_every_ten_seconds_with_the_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, clock = Stream(terminal=False), [0.0]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with DryrunProgress(Console(Language.EN)) as progress:
        progress.begin([task(0), task(1)])
        for tenth in range(1800):  # three minutes, of which the first task takes one
            clock[0] = tenth / 10
            if clock[0] < 60:
                progress.state(task(0), TaskState("start", 0, 0, None, clock[0]))
            elif clock[0] == 60:
                progress.end(task(0), ProcessEnd(0, 60.0))
            elif clock[0] < 120:
                progress.state(task(1), TaskState("start", 0, 0, None, clock[0] - 60))
    lines = stream.getvalue().splitlines()
    assert lines[:2] == [
        "0 of 2 runs done; stage 0, 2 layers: simulating: starting MindSpore … 10 s",
        "0 of 2 runs done; stage 0, 2 layers: simulating: starting MindSpore … 20 s",
    ]
    assert "1 of 2 runs done; stage 0, 2 layers: done in 60 s; about 60 s left" in lines
    assert lines[-1] == "1 of 2 runs done; stage 1, 2 layers: simulating: starting MindSpore … 50 s; about 10 s left"
    assert len(lines) == 11  # of a run of two minutes


def test_a_terminal_shows_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(dryrun_progress, "width_of", lambda _stream: 80)
    with DryrunProgress(Console(Language.EN)) as progress:
        progress.begin([task(0), task(1), task(2)])
        progress.state(task(0), TaskState("start", 0, 0, None, 0.0))
        progress.end(task(0), ProcessEnd(0, 200.0))
        progress.state(task(1), TaskState("build", 0, 0, None, 80.0))
        last = screens(stream.getvalue())[-1]
    assert last == [
        "stage 1, 2 layers: simulating: building the model … 80 s",
        "1 of 3 runs done, 1 waiting",
        "about 5 min left",
    ]


def test_what_takes_a_while_is_done_once_and_only_when_a_process_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Stream(terminal=False))
    done: list[str] = []
    with DryrunProgress(Console(Language.EN), lambda: done.append("loaded")) as progress:
        progress.begin([task(0)])
        assert not done  # this must not delay the process
        for seconds in (0.0, 0.4):
            progress.state(task(0), TaskState("compile", 0, 0, None, seconds))
    assert done == ["loaded"]


def test_smaller_processes_take_less_and_the_last_ones_show_most() -> None:
    tasks = [replace(task(stage), layers=8 if stage < 2 else 4) for stage in range(12)]
    pace = Pace(tasks)
    pace.state(tasks[0], TaskState("start", 0, 0, None, 0.0))
    pace.end(tasks[0], ProcessEnd(0, 240.0))
    assert pace.remaining_seconds() == 240 + 10 * 180  # half as many layers
    for number in range(1, 8):
        pace.state(tasks[number], TaskState("start", 0, 0, None, 0.0))
        pace.end(tasks[number], ProcessEnd(0, 240.0 if number < 4 else 20.0))
    assert pace.remaining_seconds() == 4 * 20  # the machine was busy before


def test_a_second_list_of_runs_is_counted_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(terminal=False)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(dryrun_progress, "_SILENCE", 0)
    with DryrunProgress(Console(Language.EN)) as progress:
        for count in (3, 2):
            progress.begin([task(stage) for stage in range(count)])
            for stage in range(count):
                progress.end(task(stage), ProcessEnd(0, 3.0))
    assert re.findall(r"(\d) of (\d) runs done", stream.getvalue()) == [
        *zip("123", "333", strict=True),
        *zip("12", "22", strict=True),
    ]
