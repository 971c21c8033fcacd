"""Test loops that are skipped because of a value: detected by the lines of the function, without MindSpore."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

import pytest

from ms_tune.dryrun.child.hook import loops

TOLD: list[int] = []


class Value:
    """A value on the device that records when it is read."""

    def __init__(self, *, truth: bool) -> None:
        self.truth = truth

    def __bool__(self) -> bool:
        loops.watch_entry(sys._getframe(1), lambda _file, line: TOLD.append(line))
        return self.truth


YES, NO = Value(truth=True), Value(truth=False)


def entered() -> int:
    rounds = 0
    while Value(truth=rounds < 2):
        rounds += 1
    return 0


def ended_behind_a_round() -> int:
    going: object = True
    while going:
        going = NO
    return 0


def passed_over() -> int:
    line = sys._getframe().f_lineno + 1
    while NO:
        pass
    return line


def passed_over_in_several_lines() -> int:
    line = sys._getframe().f_lineno + 1
    while (len(TOLD) < 9 and
           NO):  # fmt: skip
        pass
    return line


def passed_over_at_the_end() -> int:
    def inner() -> None:
        while NO:
            pass

    inner()
    return inner.__code__.co_firstlineno + 1


def raised() -> int:
    with suppress(IndexError):
        while NO or TOLD[9]:
            pass
    return 0


@pytest.mark.parametrize(
    "program",
    [entered, ended_behind_a_round, passed_over, passed_over_in_several_lines, passed_over_at_the_end, raised],
    ids=lambda program: program.__name__,
)
def test_what_is_passed_over_is_reported_by_its_line(program: Callable[[], int]) -> None:
    if sys.gettrace() is not None:
        pytest.skip("somebody else traces")
    TOLD.clear()
    line = program()
    expected = [line] if line else []
    assert expected == TOLD
    assert sys.gettrace() is None
