"""Check that objects built by the stand-ins are valid for a real C++ program.

The program declares the classes as CANN's headers do (``graph/operator.h``, ``graph/tensor.h``, ``graph/ascend_string.h``,
``graph/operator_factory.h``, ``ge/ge_api_error_codes.h``; CANN 8) and is built as MindSpore's wheel is, with the old
string ABI. Every object is built in poisoned memory between two guard words.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ms_tune import native
from ms_tune.dryrun.cann_sim.inventory import source_text
from ms_tune.native import compile_library, find_compilers
from tests.dryrun.machine import GXX, needs_c_compiler, needs_gxx, needs_zig

pytestmark = needs_gxx

PROGRAM = Path(__file__).parents[1] / "data" / "cann_sim" / "layouts.cc"


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the program without linking it."""
    assert GXX is not None
    folder = tmp_path_factory.mktemp("layouts")
    output = folder / "program.o"
    flags = ["-std=c++17", "-O1", "-fPIC", "-D_GLIBCXX_USE_CXX11_ABI=0"]
    done = _run(GXX, *flags, "-c", "-o", str(output), str(PROGRAM))
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="module")
def text(program: Path) -> str:
    """Return the stand-ins' C file for the functions that the program, compiled by g++, needs."""
    listing = _run("nm", "-u", "--format=posix", str(program))
    symbols = sorted(line.split()[0] for line in listing.stdout.splitlines() if line.startswith(("_ZN2ge", "_ZNK2ge")))
    assert len(symbols) > 30, listing
    return source_text(symbols)


def _outcome(program: Path, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Link the program with stand-ins made of this C file, run it, and return its end."""
    assert GXX is not None
    (folder / "standin.c").write_text(text, encoding="utf-8")
    library = folder / "libstandin.so"
    compile_library(folder / "standin.c", library, dict(os.environ))
    executable = folder / "program"
    linked = _run(GXX, "-o", str(executable), str(program), str(library), f"-Wl,-rpath,{folder}")
    assert linked.returncode == 0, linked.stderr
    return _run(str(executable))


@pytest.mark.slow
@needs_c_compiler
def test_cpp_takes_the_stand_ins_for_the_real_classes(program: Path, text: str, tmp_path: Path) -> None:
    done = _outcome(program, text, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@needs_zig
@pytest.mark.slow
def test_cpp_takes_stand_ins_compiled_by_zig(
    program: Path, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zig = next(found for found in find_compilers() if found.name == "zig cc")
    monkeypatch.setattr(native, "find_compilers", lambda: (zig,))
    done = _outcome(program, text, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
