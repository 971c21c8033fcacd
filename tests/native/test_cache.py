"""Test the search for a C compiler, and the cache of builds: built once, by several processes at once, by a killed one, in unusable folders."""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from ms_tune.errors import ExitCode, StandInBuildError
from ms_tune.native import cache_root, cached_folder, compile_library, find_compilers, is_complete
from ms_tune.text import Language, render
from tests.dryrun.machine import C_COMPILER, needs_c_compiler, needs_zig

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


SOURCE = '__attribute__((visibility("default"))) int answer(void) { return 42; }'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "build" / "standin.c"
    path.parent.mkdir()
    path.write_text(SOURCE, encoding="utf-8")
    return path


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the only one in PATH."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def no_zig(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ziglang" else real(name))


def program(folder: Path, name: str, script: bytes) -> None:
    path = folder / name
    path.write_bytes(b"#!/bin/sh\n" + script + b"\n")
    path.chmod(0o755)


def working(folder: Path, name: str) -> None:
    assert C_COMPILER is not None
    program(folder, name, f'PATH="{os.defpath}:/usr/local/bin" exec "{C_COMPILER}" "$@"'.encode())


def loads(library: Path) -> bool:
    return int(ctypes.CDLL(str(library)).answer()) == 42


@pytest.mark.usefixtures("tools", "no_zig")
def test_no_compiler_at_all_is_reported_with_a_way_out(source: Path) -> None:
    assert find_compilers() == ()
    with pytest.raises(StandInBuildError) as caught:
        compile_library(source, source.with_name("out.so"), dict(os.environ))
    assert caught.value.exit_code == ExitCode.USAGE
    assert caught.value.hint is not None
    assert "ziglang" in render(caught.value.hint, Language.EN)
    assert "ziglang" in render(caught.value.hint, Language.ZH)


@needs_c_compiler
@pytest.mark.usefixtures("no_zig")
def test_the_systems_compiler_builds_a_library_that_loads(source: Path) -> None:
    library = source.with_name("out.so")
    assert compile_library(source, library, dict(os.environ)).name in ("cc", "gcc", "clang")
    assert loads(library)


@needs_c_compiler
@pytest.mark.usefixtures("no_zig")
@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(b"#!/bin/sh\nexit 1", id="fails"),
        pytest.param(b"#!/bin/sh\nexit 0", id="writes nothing"),
        pytest.param(b"#!/bin/sh\nkill -9 $$", id="is killed"),
        pytest.param(b"#!/bin/sh\nprintf '\\377\\376 cannot\\n' >&2; exit 1", id="complains in another encoding"),
        pytest.param(b"#!/no/such/interpreter\n", id="cannot be started"),
    ],
)
def test_a_broken_compiler_gives_way_to_the_next(source: Path, tools: Path, broken: bytes) -> None:
    program(tools, "cc", b"exit 0")
    (tools / "cc").write_bytes(broken)
    working(tools, "gcc")
    library = source.with_name("out.so")
    assert compile_library(source, library, dict(os.environ)).name == "gcc"
    assert loads(library)


@needs_c_compiler
@pytest.mark.usefixtures("no_zig")
def test_a_compiler_that_hangs_gives_way_to_the_next(
    source: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.run

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        if command[0].endswith("/cc"):
            raise subprocess.TimeoutExpired(command, 300)
        assert options["timeout"]
        return real(command, **options)  # type: ignore[call-overload, no-any-return]

    program(tools, "cc", b"exit 0")
    working(tools, "gcc")
    monkeypatch.setattr(subprocess, "run", run)
    assert compile_library(source, source.with_name("out.so"), dict(os.environ)).name == "gcc"


@pytest.mark.usefixtures("no_zig")
def test_when_all_fail_the_complaints_of_all_are_reported(source: Path, tools: Path) -> None:
    program(tools, "cc", b"echo cc is broken >&2; exit 1")
    program(tools, "gcc", b"exit 77")
    with pytest.raises(StandInBuildError) as caught:
        compile_library(source, source.with_name("out.so"), dict(os.environ))
    assert "cc: cc is broken" in str(caught.value)
    assert "gcc: exit code 77" in str(caught.value)
    assert caught.value.hint is not None


@pytest.mark.usefixtures("no_zig")
@pytest.mark.parametrize(
    ("script", "number"),
    [
        (b"echo 'standin.c:7: fatal error: error writing to cc.s: No space left on device' >&2; exit 1", errno.ENOSPC),
        (b"echo 'ld: final link failed: File too large' >&2; exit 1", errno.EFBIG),
        (b"kill -s XFSZ $$", errno.EFBIG),
        (
            b"echo 'collect2: fatal error: ld terminated with signal 25 [File size limit exceeded]' >&2; exit 1",
            errno.EFBIG,
        ),
    ],
)
def test_a_full_disk_is_not_the_compilers_fault(source: Path, tools: Path, script: bytes, number: int) -> None:
    program(tools, "cc", script)
    program(tools, "gcc", b"echo gcc is never asked >&2; exit 1")
    with pytest.raises(OSError, match=r"No space|File too large") as caught:
        compile_library(source, source.with_name("out.so"), dict(os.environ))
    assert caught.value.errno == number


@needs_c_compiler
def test_a_limit_on_the_size_of_files_is_reported_by_the_real_compiler(source: Path) -> None:
    code = (
        "import os, resource, sys; from pathlib import Path; from ms_tune.native import compile_library\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))\n"
        "try: compile_library(Path(sys.argv[1]), Path(sys.argv[1]).with_name('out.so'), dict(os.environ))\n"
        "except OSError as error: print(error.errno)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(source)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == f"{errno.EFBIG}\n"


@needs_zig
@pytest.mark.usefixtures("tools")
def test_zig_builds_a_library_on_a_machine_without_a_compiler(source: Path) -> None:
    library = source.with_name("out.so")
    # A home that cannot be written: its path leads through a regular file.
    environment = {**os.environ, "PATH": "", "HOME": str(source / "home"), "XDG_CACHE_HOME": str(source / "cache")}
    assert compile_library(source, library, environment).name == "zig cc"
    assert loads(library)
