"""Test the search for a working C compiler."""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ms_tune.errors import ExitCode, StandInBuildError
from ms_tune.native import compile_library, find_compilers
from ms_tune.text import Language, render
from tests.dryrun.machine import C_COMPILER, needs_c_compiler, needs_zig

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
