"""Drive the allocator of ``memory run --plan`` with recorded programs, over address space without memory."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random

import pytest

from ms_tune.errors import StandInBuildError
from ms_tune.memory import train
from ms_tune.memory.plan import PlanReport, PlanRequest, plan_blocks
from ms_tune.native import compiled_library
from ms_tune.units import KIB, MIB
from tests.fuzz.allocator import HERE, compiled
from tests.memory.test_torch_plan import training
from tests.pools.test_torch_replay import REAL
from tests.scratch import new_folder

Long = ctypes.c_int64
FIGURES = ("requests", "planned", "departures", "occupied", "live", "live_peak", "reserved", "reserved_peak")


@cache
def libraries() -> tuple[Path, Path]:
    """Return the allocator and the stand-in for cudart."""
    try:
        own = compiled_library("memory.follow", "allocator.cpp", train._FLAGS, own_runtime=False)
    except StandInBuildError as error:
        pytest.skip(str(error.message))
    return own, compiled(new_folder("cudart") / "libcudart_fake.so", HERE / "fake_cuda.cpp", "-shared", "-fPIC")


class Allocator:
    """The allocator, with a second book of live ranges that is checked at each request."""

    def __init__(self, folder: Path, report: PlanReport | None = None, *, planned: bool = True) -> None:
        own, fake = libraries()
        self.device = ctypes.CDLL(str(fake), mode=ctypes.RTLD_GLOBAL)
        self.device.fake_room(ctypes.c_size_t(1 << 46))
        copy = folder / f"allocator-{len(list(folder.glob('allocator-*')))}.so"  # a library has one state
        shutil.copy(own, copy)
        self.padding = report.torch.padding if report and report.torch else 0
        self.library = ctypes.CDLL(str(copy))
        self.library.ms_open.restype = ctypes.c_char_p
        self.library.ms_malloc.restype = ctypes.c_void_p
        assert self.library.ms_open(b"cuda", Long(self.padding), b"rank 5 ") is None
        for sizes, offsets, repeats, height in streams_of(report if planned else None):
            column = Long * len(sizes)
            numbers = map(Long, (repeats[1], repeats[2], height))
            assert self.library.ms_plan(Long(len(sizes)), column(*sizes), column(*offsets), *numbers)
        self._live: list[tuple[int, int]] = []

    def take(self, size: int, stream: int = 0) -> int:
        start = self.library.ms_malloc(Long(size), 0, ctypes.c_void_p(stream)) or 0
        end = start + size + self.padding
        at = bisect_left(self._live, (start, end))
        assert at == 0 or self._live[at - 1][1] <= start
        assert at == len(self._live) or end <= self._live[at][0]
        self._live.insert(at, (start, end))
        return int(start)

    def give(self, start: int) -> None:
        del self._live[bisect_left(self._live, (start, 0))]
        self.library.ms_free(ctypes.c_void_p(start), Long(0), 0, None)

    def figures(self) -> dict[str, int]:
        found = (Long * 10)()
        self.library.ms_figures(0, found)
        return dict(zip(FIGURES, found, strict=False))


def streams_of(report: PlanReport | None) -> Iterator[tuple[list[int], list[int], Sequence[int], int]]:
    if report is None or report.torch is None:
        return
    size, address = report.plan.problem.size, report.plan.address
    for part in report.torch.streams:
        offsets = (address[part.rows] - part.base).tolist()
        yield size[part.rows].tolist(), offsets, part.step or (0, 0, 0), part.height


def drive(
    allocator: Allocator, report: PlanReport, change: Callable[[int, int], int] = lambda _, size: size
) -> dict[str, int]:
    """Carry out the program of a plan, with changed sizes; blocks older than the recording are requested first."""
    assert report.torch is not None
    problem = report.plan.problem
    stream = {row: part.stream + 1 for part in report.torch.streams for row in part.rows.tolist()}
    rows = list(zip(problem.lower.tolist(), problem.upper.tolist(), problem.size.tolist(), strict=True))
    starts = [(lower, 1, number) for number, (lower, _, _) in enumerate(rows)]
    held: dict[int, int] = {}
    for _, begins, number in sorted(starts + [(upper, 0, number) for number, (_, upper, _) in enumerate(rows)]):
        if begins:
            held[number] = allocator.take(change(number, rows[number][2] - report.torch.padding), stream[number])
        else:
            allocator.give(held.pop(number))
    return allocator.figures()


@pytest.fixture(params=["made", *(path.name for path in (sorted(REAL.iterdir()) if REAL.is_dir() else []))])
def report(request: pytest.FixtureRequest, tmp_path: Path) -> PlanReport:
    path = training(tmp_path / "s.pickle", streams=2) if request.param == "made" else REAL / request.param
    return plan_blocks(path, PlanRequest(), lambda _progress: None)


@pytest.mark.drawn(3)
def test_a_program_follows_its_plan_and_nothing_else_is_reserved(report: PlanReport, tmp_path: Path) -> None:
    found, alone = (drive(Allocator(tmp_path, report, planned=planned), report) for planned in (True, False))
    assert found["planned"] == found["requests"] == len(report.plan.problem)
    assert found["reserved_peak"] == report.plan.height <= report.plan.lower_bound / 0.99
    assert (found["departures"], found["occupied"], found["live"], alone["planned"]) == (0, 0, 0, 0)
    assert found["reserved_peak"] <= alone["reserved_peak"] * 1.01


@pytest.mark.drawn(5)
@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_other_sizes_cost_memory_and_nothing_else(report: PlanReport, share: float, tmp_path: Path) -> None:
    def change(number: int, size: int) -> int:
        random = Random(number)  # noqa: S311 - a program of a test
        return max(1, int(size * random.uniform(0.5, 1.5))) if random.random() < share else size

    found, alone = (drive(Allocator(tmp_path, report, planned=planned), report, change) for planned in (True, False))
    assert found["planned"] + found["departures"] + found["occupied"] == found["requests"]
    assert found["live_peak"] == alone["live_peak"] <= found["reserved_peak"]
    assert found["reserved_peak"] <= report.plan.height + alone["reserved_peak"] * 1.01


def test_later_steps_and_requests_in_between_and_left_out(tmp_path: Path) -> None:
    report = plan_blocks(training(tmp_path / "s.pickle"), PlanRequest(), lambda _progress: None)
    sizes = [(number % 9 + 1) * 300 * KIB for number in range(70)]
    allocator = Allocator(tmp_path, report)
    for _ in range(3):
        allocator.take(40 * KIB)
    for step in range(9):
        held: list[int] = []
        for number, size in enumerate(sizes):
            if (step, number) == (5, 30):
                allocator.give(allocator.take(7 * MIB))
            if (step, number) != (6, 50):
                held.append(allocator.take(size))
            if number % 3:
                allocator.give(held.pop(0))
        for start in held:
            allocator.give(start)
    found = allocator.figures()
    assert found["planned"] >= found["requests"] - 12  # the extra one, and a few until the place is found again
    assert found["departures"] >= 1


def test_a_block_that_another_stream_uses_waits_for_it(tmp_path: Path) -> None:
    allocator = Allocator(tmp_path)
    one, other = ctypes.c_void_p(0x10), ctypes.c_void_p(0x20)
    first = allocator.take(30 * MIB, 0x10)
    allocator.library.ms_record_stream(ctypes.c_void_p(first), other)
    allocator.library.ms_record_stream(ctypes.c_void_p(first), one)  # its own stream is in order
    allocator.device.fake_work.restype = Long
    work = allocator.device.fake_work(other)
    allocator.give(first)
    second = allocator.take(30 * MIB, 0x10)
    assert second != first
    allocator.device.fake_finish(other, Long(work))
    assert allocator.take(30 * MIB, 0x10) == first
    allocator.give(second)
    assert allocator.take(30 * MIB, 0x20) not in (first, second)  # of another stream's free list


def test_zero_bytes_and_unknown_addresses(tmp_path: Path) -> None:
    allocator = Allocator(tmp_path)
    assert allocator.library.ms_malloc(Long(0), 0, None) is None
    for address in (None, ctypes.c_void_p(0x1234)):
        allocator.library.ms_free(address, Long(0), 0, None)
    assert allocator.figures()["requests"] == 0


def test_short_memory_gives_the_cache_back_first(tmp_path: Path) -> None:
    allocator = Allocator(tmp_path)
    allocator.device.fake_room(ctypes.c_size_t(0))
    allocator.device.cudaMemGetInfo(ctypes.byref(free := ctypes.c_size_t()), ctypes.byref(ctypes.c_size_t()))
    allocator.device.fake_room(ctypes.c_size_t((1 << 64) - free.value + 100 * MIB))  # so much more than is taken
    allocator.give(allocator.take(60 * MIB))
    assert allocator.take(90 * MIB)
    assert allocator.figures()["reserved"] == 90 * MIB


CODE = """
import ctypes, os, signal, sys
fake = ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_GLOBAL)
own = ctypes.PyDLL(sys.argv[1])
own.ms_malloc.restype, own.ms_malloc.argtypes = ctypes.c_void_p, [ctypes.c_int64, ctypes.c_int, ctypes.c_void_p]
own.ms_open.restype = ctypes.c_char_p
assert own.ms_open(b"cuda", ctypes.c_int64(0), b"rank 5 ") is None
block = own.ms_malloc(1 << 20, 0, None)
"""


def run_code(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CODE + code, *map(str, libraries())]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_signal_prints_statistics() -> None:
    done = run_code("os.kill(os.getpid(), signal.SIGUSR1)")
    line = "ms-tune: rank 5 device 0: 0 of 1 requests placed as planned, 1 by fallback (0 departures, 0 occupied)"
    assert done.stderr.startswith(line), done.stderr
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)


def test_a_signal_handler_of_the_program_is_left_alone() -> None:
    before = "import signal; signal.signal(signal.SIGUSR1, lambda *_: print('mine'))"
    command = [sys.executable, "-c", before + CODE + "os.kill(os.getpid(), signal.SIGUSR1)", *map(str, libraries())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("mine\n", "")


def test_short_memory_fails_with_figures() -> None:
    done = run_code("fake.fake_room(ctypes.c_size_t(4 << 20)); own.ms_malloc(8 << 20, 0, None)")
    assert done.returncode == -signal.SIGABRT  # an exception that only PyTorch catches
    assert "out of memory on device 0: tried to allocate 8 MiB; 2 MiB of 4 MiB free" in done.stderr


def test_a_forked_worker_frees_nothing_and_a_killed_one_leaves_nothing() -> None:
    done = run_code("""
if not os.fork():
    own.ms_free(ctypes.c_void_p(block), ctypes.c_int64(0), 0, None)
    own.ms_statistics()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
found = (ctypes.c_int64 * 10)()
own.ms_figures(0, found)
print(found[4])
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
""")
    assert (done.stdout, done.stderr, done.returncode) == (f"{MIB}\n", "", -signal.SIGKILL)
    assert os.path.getsize(libraries()[0])  # noqa: PTH202 - the library is whole
