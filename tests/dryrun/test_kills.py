"""Whoever is killed, and whenever: nothing is left behind, no file outside the run folder, no port for others.

Minutes of real runs: ``MS_TUNE_TEST_KILLS=60 pytest tests/dryrun/test_kills.py`` (so many kills; ``MS_TUNE_TEST_SEED`` for others).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.dryrun.launching import hear_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_KILLS = int(os.environ.get("MS_TUNE_TEST_KILLS", "0"))
_SEED = int(os.environ.get("MS_TUNE_TEST_SEED", "20261123"))
_MARK = "MS_TUNE_KILLED_TEST"  # a variable that all processes of a run have
_LATEST = 9.0  # seconds after the start at which somebody is killed
_GONE = 12.0  # seconds in which all that it started has ended: five politely, then not
_AT_ONCE = 10

pytestmark = [
    pytest.mark.mindspore,
    pytest.mark.slow,
    pytest.mark.skipif(not _KILLS, reason="MS_TUNE_TEST_KILLS is not set: minutes"),
]

# Forks, spawns, leaves its session, waits: what ends of itself and what does not.
PROGRAM = """
import multiprocessing, os, subprocess, sys, time
def work(seconds):
    import mindspore
    mindspore.set_device("Ascend")
    kept = mindspore.mint.zeros((16, 1024, 256))
    time.sleep(seconds)
if __name__ == "__main__":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    for kind in ("fork", "spawn"):
        multiprocessing.get_context(kind).Process(target=work, args=(float(sys.argv[1]),)).start()
    work(float(sys.argv[1]))
"""
_COMMAND = ("--", sys.executable, "train.py", "4")
_PACKAGED = ("--layers", "2", "--no-extrapolate")


class Run:
    """One ``ms-tune dryrun`` in a home, a temporary folder and a working folder of its own."""

    def __init__(self, place: Path, cache: Path, *arguments: str, before: tuple[str, ...] = ()) -> None:
        self.place = place
        self.mark = f"{os.getpid()}-{place.name}"
        for name in ("home", "tmp", "work"):
            (place / name).mkdir(parents=True)
        (place / "work" / "train.py").write_text(PROGRAM, encoding="utf-8")
        environment = {
            **os.environ,
            "MS_TUNE_CACHE": str(cache),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            _MARK: self.mark,
            "HOME": str(place / "home"),
            "TMPDIR": str(place / "tmp"),
        }
        with (place / "out").open("wb") as out, (place / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "ms_tune", "dryrun", "--json", "--run-dir", "kept", *arguments],
                cwd=place / "work",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=hear_signals,  # noqa: PLW1509 - no threads here
            )

    def living(self) -> list[int]:
        """Processes with the run's mark in their environment."""
        wanted = f"{_MARK}={self.mark}\0".encode()
        return [pid for pid in _processes() if wanted in _read(pid, "environ") + b"\0"]

    def strays(self) -> list[str]:
        """Files that are outside the run folder; MindSpore's own in the home are the user's."""
        found = [*(self.place / "tmp").rglob("*"), *(self.place / "home").rglob("*")]
        found += [path for path in (self.place / "work").iterdir() if path.name not in ("kept", "train.py")]
        return sorted(str(path.relative_to(self.place)) for path in found)


def _processes() -> Iterator[int]:
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            yield int(path.name)


def _read(pid: int, name: str) -> bytes:
    try:
        if b"\nState:\tZ" in Path(f"/proc/{pid}/status").read_bytes():
            return b""
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _open_to_others(pids: list[int]) -> list[str]:
    """Sockets of these processes that listen on anything but loopback, by their line in ``/proc/net``."""
    own = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            own |= {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    found = []
    for name, local in (("tcp", "0100007F"), ("tcp6", "00000000000000000000000001000000")):
        for line in Path(f"/proc/net/{name}").read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own and not fields[1].startswith(local):
                found.append(line)
    return found


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stand-ins that are built already."""
    place = tmp_path_factory.mktemp("cache")
    run = Run(tmp_path_factory.mktemp("first") / "run", place, *_COMMAND)
    assert run.process.wait(300) == 0, (run.place / "err").read_text("utf-8")
    return place


@pytest.mark.parametrize("number", range(_KILLS))
def test_nothing_is_left_of_a_run_that_is_killed(number: int, tmp_path: Path, cache: Path) -> None:
    """ms-tune itself by each signal, or, one time in three, any process that it started by ``SIGKILL``."""
    chosen = random.Random(_SEED + number)  # noqa: S311 - no secret
    run = Run(tmp_path / "run", cache, *chosen.choice([_COMMAND, _COMMAND, _PACKAGED]))
    time.sleep(chosen.uniform(0, _LATEST))
    assert _open_to_others(run.living()) == []
    others = sorted(set(run.living()) - {run.process.pid})
    sign = chosen.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    victim = run.process.pid
    if others and chosen.random() < 1 / 3:
        victim, sign = chosen.choice(others), signal.SIGKILL
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, sign)
    killed = victim == run.process.pid
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.process.wait(_GONE if killed else 120)
    try:
        assert run.process.returncode is not None
        assert _wait(lambda: not run.living(), _GONE), f"{victim} {sign} left {run.living()}"
        assert run.strays() == []
        if (
            not killed and run.process.returncode == 0
        ):  # of a process that the program does not wait for, or that had ended
            assert json.loads((run.place / "out").read_bytes())["verdict"] is not None
    finally:
        for pid in run.living():
            os.kill(pid, signal.SIGKILL)


def test_ten_at_once_on_an_empty_cache_of_which_some_are_killed(tmp_path: Path) -> None:
    chosen = random.Random(_SEED)  # noqa: S311 - as above
    cache = tmp_path / "cache"
    runs = [Run(tmp_path / f"run_{number}", cache, *_COMMAND) for number in range(_AT_ONCE)]
    killed = chosen.sample(runs, 3)
    for run in killed:
        time.sleep(chosen.uniform(0, 2))
        run.process.kill()
    for run in runs:
        run.process.wait(600)
    assert _wait(lambda: not any(run.living() for run in runs), _GONE)
    for run in runs:
        assert run.strays() == []
        if run not in killed:
            told = json.loads((run.place / "out").read_bytes())
            assert (run.process.returncode, told["verdict"]) == (0, "fits"), (run.place / "err").read_text("utf-8")
            assert [round(rank["peak_bytes"] / 2**20) for rank in told["ranks"]] == [16] * 3
    again = Run(tmp_path / "again", cache, *_COMMAND)  # what the killed ones left of the cache serves the next
    assert again.process.wait(300) == 0


def test_the_first_process_of_a_container(tmp_path: Path, cache: Path) -> None:
    before = ("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc")
    if (
        shutil.which("unshare") is None
        or subprocess.run([*before, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no process namespace can be made here")
    run = Run(tmp_path / "run", cache, *_COMMAND, before=before)
    assert run.process.wait(300) == 0, (run.place / "err").read_text("utf-8")
    assert json.loads((run.place / "out").read_bytes())["verdict"] == "fits"
    assert _wait(lambda: not run.living(), _GONE)
    assert run.strays() == []
    halfway = Run(tmp_path / "halfway", cache, *_COMMAND, before=before)
    assert _wait(lambda: len(halfway.living()) > 3, 60)
    halfway.process.terminate()
    for pid in halfway.living():  # `unshare` does not pass the signal on
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    assert _wait(lambda: not halfway.living(), _GONE)
    halfway.process.wait(_GONE)
