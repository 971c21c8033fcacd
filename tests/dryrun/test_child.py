"""Test the simulated process: its environment, its threads, and the values and loops of a program."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ms_tune.dryrun.cann_sim.environment import Backend, Cann
from ms_tune.dryrun.child.hook import loops, runtime
from ms_tune.dryrun.child.hook.finite_checks import NAME, _follow_method, _forget_after, _list_values
from ms_tune.dryrun.child.hook.support import put_around
from ms_tune.dryrun.environment import simulation_environment


class Base:
    """The common base class of both kinds of tensors."""

    def clone(self) -> str:
        return "base"

    def fill(self) -> str:
        return "base"


class Plain(Base):
    """The class whose methods are replaced."""


class Own(Base):
    """A parameter class that overrides a method."""

    def clone(self, how: str = "same") -> str:
        return f"own, {how}"

    def fill(self, how: str = "zeros") -> str:
        return f"own, {how}"


class Both(Plain, Own):
    """A parameter class that is also a subclass of a tensor class."""


def test_a_class_that_is_followed_does_not_come_before_another_ones_own_methods() -> None:
    _follow_method(Plain, "clone", lambda _arguments, _result: None)
    _forget_after(Plain, "fill")
    assert Both().clone("zeros") == "own, zeros"
    assert Both().fill("ones") == "own, ones"
    assert Plain().clone() == Plain().fill() == "base"


class Placed:
    """A tensor at an address invented by the simulation."""

    dtype, shape = "Int64", (2, 3)

    def __init__(self, **known: object) -> None:
        vars(self).update(known)

    def _tolist(self) -> Any:  # noqa: ANN401 - a number or lists of it
        return "read"


def test_lists_of_what_is_known_are_made_without_a_look_at_its_memory() -> None:
    class Unread(Placed):
        pass

    put_around(Unread, "_tolist", _list_values)
    assert Unread()._tolist() == "read"
    assert Unread(**{NAME: 5})._tolist() == [[5, 5, 5], [5, 5, 5]]
    assert Unread(**{NAME: True}, dtype="Bool", shape=())._tolist() is True
    number = Unread(**{NAME: 0}, dtype="Float32", shape=(1,))._tolist()
    assert (number, type(number[0])) == ([0.0], float)


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


def test_threads_that_wait_are_no_reason_to_wait() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    runtime.let_threads_begin()
    assert not any(map(runtime._has_never_waited, Path("/proc/self/task").iterdir()))
    done.set()
    thread.join()


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_has_never_waited", lambda _: True)
    monkeypatch.setattr(runtime, "_TO_BEGIN", 0.05)
    begin = time.monotonic()
    runtime.let_threads_begin()
    assert time.monotonic() - begin >= 0.05


@pytest.mark.parametrize(("switches", "never"), [(0, True), (1, False), (10, False)])
def test_a_thread_that_never_waited_is_known_by_its_status(switches: int, never: bool, tmp_path: Path) -> None:  # noqa: FBT001
    text = f"Name:\tpython\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t0\n"
    (tmp_path / "status").write_text(text, encoding="utf-8")
    assert runtime._has_never_waited(tmp_path) is never
    assert not runtime._has_never_waited(tmp_path / "gone")


CANN = Cann(Backend.STAND_IN, Path("cann"))


def test_it_simulates_one_rank_and_tracks_memory() -> None:
    made = simulation_environment({}, CANN, rank=5, world_size=16)
    wanted = {
        "MS_SIMULATION_LEVEL": "1",
        "MS_ALLOC_CONF": "memory_tracker:True",
        "MS_MEMORY_STATISTIC": "1",
        "RANK_ID": "5",
        "RANK_SIZE": "16",
        "DEVICE_ID": "0",
    }
    assert {name: made.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    "name",
    [
        "MS_ROLE",
        "MS_SCHED_HOST",
        "MS_SCHED_PORT",
        "MS_WORKER_NUM",
        "MS_NODE_ID",
        "MS_CLUSTER_SIZE",
        "RANK_TABLE_FILE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
    ],
)
def test_what_a_real_launch_left_behind_is_dropped(name: str) -> None:
    assert name not in simulation_environment({name: "1"}, CANN, 0, 1)


def test_a_log_level_of_single_modules_does_not_hide_the_statistics() -> None:
    # MindSpore 2.9: with MS_SUBMODULE_LOG_v={DEVICE:4,RUNTIME_FRAMEWORK:4,ASCEND:4} it prints none at exit.
    made = simulation_environment({"MS_SUBMODULE_LOG_v": "{DEVICE:4}"}, CANN, 0, 1)
    assert "MS_SUBMODULE_LOG_v" not in made


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MS_SIMULATION_LEVEL", "3"),
        ("MS_ALLOC_CONF", "enable_vmm:True"),
        ("RANK_ID", "7"),
        ("RANK_SIZE", "1024"),
        ("DEVICE_ID", "3"),
        ("GLOG_v", "4"),
        ("MS_DEV_LAUNCH_BLOCKING", "0"),
    ],
)
def test_ours_win_over_the_users(name: str, value: str) -> None:
    made = simulation_environment({name: value}, CANN, 0, 1)
    assert made[name] == simulation_environment({}, CANN, 0, 1)[name] != value
