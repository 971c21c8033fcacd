"""Describe this machine with reasons to skip tests, and compile small programs."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest


def _lacks(package: str) -> bool:
    return importlib.util.find_spec(package) is None


C_COMPILER = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
GXX = shutil.which("g++")

needs_c_compiler = pytest.mark.skipif(C_COMPILER is None, reason="no C compiler on this machine")
needs_gxx = pytest.mark.skipif(GXX is None or shutil.which("nm") is None, reason="no g++ and nm on this machine")
needs_elftools = pytest.mark.skipif(_lacks("elftools"), reason="pyelftools is not installed")
needs_zig = pytest.mark.skipif(_lacks("ziglang"), reason="ziglang is not installed")
needs_mindspore = pytest.mark.skipif(_lacks("mindspore"), reason="MindSpore is not installed")
needs_mindformers = pytest.mark.skipif(
    _lacks("mindspore") or _lacks("mindformers"), reason="MindSpore or MindFormers is not installed"
)


def compile_c(folder: Path, name: str, text: str, *flags: str) -> Path:
    """Compile a text into a shared library with this file name; with the flag ``-r`` into an object file."""
    assert C_COMPILER is not None
    source = folder / f"{name}.c"
    source.write_text(text, encoding="utf-8")
    output = folder / name
    kind = () if "-r" in flags else ("-shared",)
    command = [C_COMPILER, *kind, "-fPIC", "-O1", "-fno-builtin", "-o", str(output), str(source), *flags]
    subprocess.run(command, check=True)
    return output
