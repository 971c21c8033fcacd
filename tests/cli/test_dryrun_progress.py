"""Test the output on standard error while processes run."""

from __future__ import annotations

import io
import re
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.cli import output
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
    patch.setattr(output, "width_of", lambda _stream: 100)
    with DryrunProgress(Console(Language.EN)) as progress:
        progress.say(msg("dryrun.build.wait"))
        progress.begin([task(0), task(1), task(2)])
        for seconds in (0.0, 0.4, 1.2):
            progress.state(task(0), TaskState("compile", 0, 0, None, seconds))
            progress.state(task(1), TaskState("step", 1, 2, None, seconds))
        progress.state(task(1), TaskState("write", 0, 0, 12345, 2.0))
        progress.end(task(0), ProcessEnd(0, 3.0))
    return stream.getvalue()


def test_a_terminal_shows_one_line_that_is_rewritten_and_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    first, *lines, last = show_progress(monkeypatch, terminal=True).split("\r\033[K")
    assert (first, last) == ("", "")
    assert lines[0] == "waiting for another process that builds the same stubs …"
    assert lines[1] == "0 of 3 runs done; stage 0, 2 layers: simulating: compiling the graph … 0 s"
    assert lines[-1] == "1 of 3 runs done; 0%; about 5 s left; stage 0, 2 layers: done in 3 s"
    assert "\n" not in "".join(lines)


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
    assert "1 of 2 runs done; 50%; about 60 s left; stage 0, 2 layers: done in 60 s" in lines
    assert (
        lines[-1] == "1 of 2 runs done; 92%; about 10 s left; stage 1, 2 layers: simulating: starting MindSpore … 50 s"
    )
    assert len(lines) == 11  # of a run of two minutes


def test_a_search_shows_its_share_and_time_left_and_an_interrupted_one_its_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, clock = Stream(terminal=False), [0.0]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    progress = DryrunProgress(Console(Language.EN))
    progress.say(msg("fit.progress.search"))
    progress.say(msg("fit.progress.bound"))  # within the same second
    for second in range(1, 26):
        clock[0] = float(second)
        progress.show(msg("fit.progress.proof"), second / 100)
    progress.say(msg("dryrun.interrupted", folder="x"))
    progress.__exit__(KeyboardInterrupt, None, None)
    first, *lines, last = stream.getvalue().splitlines()
    assert first == "searching for plans"
    assert lines == ["proving optimality; 10%; about 90 s left", "proving optimality; 20%; about 80 s left"]
    assert last.endswith("x")


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
    monkeypatch.setattr(output, "_SILENCE", 0)
    with DryrunProgress(Console(Language.EN)) as progress:
        for count in (3, 2):
            progress.begin([task(stage) for stage in range(count)])
            for stage in range(count):
                progress.end(task(stage), ProcessEnd(0, 3.0))
    assert re.findall(r"(\d) of (\d) runs done", stream.getvalue()) == [
        *zip("123", "333", strict=True),
        *zip("12", "22", strict=True),
    ]
