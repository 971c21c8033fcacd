"""Test the cache of builds: built once, by several processes at once, by a killed process, in unusable folders.

These tests may run as root, for whom permission bits have no effect. So the path of an unwritable home leads through a
regular file, and a folder of another user is simulated by a process with another user ID.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from ms_tune.errors import StandInBuildError
from ms_tune.native import cache_root, cached_folder, is_complete

ROOT = Path(__file__).parents[2]


def nobody_waits() -> None:
    pytest.fail("nobody else builds")


def fill(fresh: Path) -> None:
    (fresh / "sub").mkdir()
    (fresh / "sub" / "library.so").write_bytes(b"x" * 1000)
    (fresh / "version").write_text("8.5", encoding="utf-8")
    (fresh / "link.so").symlink_to("sub/library.so")


class Builder:
    """A build that counts its runs."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, fresh: Path) -> None:
        self.count += 1
        fill(fresh)


def strays(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir() if path.is_dir() and path.name.startswith("."))


class TestCachedFolder:
    def test_it_is_built_once_and_then_found(self, tmp_path: Path) -> None:
        build = Builder()
        folder = tmp_path / "deep" / "place"
        for _ in range(3):
            assert cached_folder(folder, build, nobody_waits) == folder
        assert build.count == 1
        assert (folder / "sub" / "library.so").stat().st_size == 1000
        assert strays(folder.parent) == []

    def test_a_build_that_fails_leaves_nothing(self, tmp_path: Path) -> None:
        def fail(fresh: Path) -> None:
            fill(fresh)
            raise RuntimeError

        with pytest.raises(RuntimeError):
            cached_folder(tmp_path / "place", fail, nobody_waits)
        assert not (tmp_path / "place").exists()
        assert strays(tmp_path) == []

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            *((name, None) for name in ("version", "sub/library.so", "complete.json", "link.so")),
            *(("sub/library.so", content) for content in (b"x" * 999, b"\0" * 1000)),
            *(("complete.json", content) for content in (b"{", b"[]")),
        ],
    )
    def test_a_folder_with_a_lost_or_changed_file_is_built_again(
        self, tmp_path: Path, name: str, content: bytes | None
    ) -> None:
        build = Builder()
        folder = cached_folder(tmp_path / "place", build, nobody_waits)
        (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
        assert not is_complete(folder)
        cached_folder(folder, build, nobody_waits)
        assert build.count == 2
        assert is_complete(folder)
        assert (folder / name).exists()
        assert (folder / "sub" / "library.so").read_bytes() == b"x" * 1000

    def test_who_comes_second_is_reported_to_wait(self, tmp_path: Path) -> None:
        started, reported = threading.Event(), threading.Event()
        built = []

        def slow(fresh: Path) -> None:
            started.set()
            assert reported.wait(60)
            fill(fresh)
            built.append("first")

        first = threading.Thread(target=cached_folder, args=(tmp_path / "place", slow, nobody_waits))
        first.start()
        assert started.wait(60)
        folder = cached_folder(tmp_path / "place", lambda _: built.append("second"), reported.set)
        first.join()
        assert built == ["first"]
        assert reported.is_set()
        assert is_complete(folder)


TEN_AT_ONCE = """
import sys, time
from pathlib import Path
from ms_tune.native import cached_folder

place, number = Path(sys.argv[1]), sys.argv[2]

def build(fresh):
    with (place / "built").open("a") as file:
        file.write("x")
    for part in range(20):
        (fresh / f"file{part}").write_text("y" * 1000)
        time.sleep(0.01)

(place / f"ready-{number}").touch()
while not (place / "go").exists():
    time.sleep(0.005)
folder = cached_folder(place / "thing", build, lambda: None)
# Whoever gets the folder gets all of it.
assert all((folder / f"file{part}").stat().st_size == 1000 for part in range(20))
"""

KILLED = """
import os, signal, sys
from pathlib import Path
from ms_tune.native import cached_folder

def build(fresh):
    (fresh / "half").write_text("done")
    os.kill(os.getpid(), signal.SIGKILL)

cached_folder(Path(sys.argv[1]), build, lambda: None)
"""


@pytest.mark.slow
def test_ten_processes_at_once_build_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TEN_AT_ONCE, str(tmp_path)]
    processes = [
        subprocess.Popen([*command, str(number)], cwd=ROOT, stderr=subprocess.PIPE, text=True) for number in range(10)
    ]
    while len(list(tmp_path.glob("ready-*"))) < 10 and all(process.poll() is None for process in processes):
        threading.Event().wait(0.01)
    (tmp_path / "go").touch()
    ends = [(process.communicate()[1], process.returncode) for process in processes]
    assert ends == [("", 0)] * 10
    assert (tmp_path / "built").read_text() == "x"
    assert strays(tmp_path) == []


def test_a_build_killed_midway_is_no_folder_and_is_cleared_away_by_the_next(tmp_path: Path) -> None:
    place = tmp_path / "place"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(place)], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not place.exists()
    assert not is_complete(place)
    assert len(strays(tmp_path)) == 1
    build = Builder()
    cached_folder(place, build, nobody_waits)
    assert build.count == 1
    assert is_complete(place)
    assert strays(tmp_path) == []


class TestCacheRoot:
    @pytest.fixture(autouse=True)
    def places(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("MS_TUNE_CACHE", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
        (tmp_path / "temporary").mkdir()
        (tmp_path / "file").write_text("a regular file", encoding="utf-8")

    @pytest.fixture
    def fallback(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        """Return the fallback folder; no other folder can be used."""
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "below"))
        return tmp_path / "temporary" / f"ms-tune-{os.getuid()}"

    def test_the_users_own_choice_comes_before_xdg_cache_home_and_that_before_home(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        assert cache_root() == tmp_path / "home" / ".cache" / "ms-tune"
        assert cache_root().is_dir()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / "chosen"))
        assert cache_root() == tmp_path / "chosen"
        assert not (tmp_path / "xdg").exists()
        monkeypatch.delenv("MS_TUNE_CACHE")
        assert cache_root() == tmp_path / "xdg" / "ms-tune"

    def test_it_may_be_a_link_to_a_folder_of_ones_own(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "large-disk").mkdir(mode=0o700)
        (tmp_path / "link").symlink_to("large-disk")
        monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / "link"))
        assert cache_root() == tmp_path / "link"

    @pytest.mark.parametrize("choice", ["{}/file", "{}/file/below", "here"])
    def test_a_choice_that_cannot_be_used_is_reported_and_not_replaced(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, choice: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        chosen = choice.format(tmp_path)
        monkeypatch.setenv("MS_TUNE_CACHE", chosen)
        with pytest.raises(StandInBuildError) as caught:
            cache_root()
        assert chosen in str(caught.value)
        assert caught.value.hint is not None
        assert not (tmp_path / "here").exists()

    def test_a_home_that_cannot_be_written_gives_way_to_the_temporary_folder(self, fallback: Path) -> None:
        assert cache_root() == fallback
        assert stat.S_IMODE(fallback.stat().st_mode) == 0o700

    def test_a_user_without_a_home_gets_the_temporary_folder(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("HOME", "/proc/self/nobody")
        assert cache_root() == tmp_path / "temporary" / f"ms-tune-{os.getuid()}"

    @pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
    def test_a_fallback_that_others_can_write_is_refused(self, fallback: Path, mode: int) -> None:
        fallback.mkdir()
        fallback.chmod(mode)
        with pytest.raises(StandInBuildError):
            cache_root()

    @pytest.mark.usefixtures("fallback")
    def test_a_fallback_of_another_user_is_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        somebody = os.getuid() + 1
        (tmp_path / "temporary" / f"ms-tune-{somebody}").mkdir(mode=0o700)  # created by this user, not by another one
        monkeypatch.setattr(os, "getuid", lambda: somebody)
        with pytest.raises(StandInBuildError):
            cache_root()

    def test_a_link_to_a_folder_that_others_can_write_is_refused(self, tmp_path: Path, fallback: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere").chmod(0o777)
        fallback.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StandInBuildError):
            cache_root()
