"""Check that output of native libraries is not part of a command's output."""

from __future__ import annotations

import ctypes
import os
import sys

import pytest

from ms_tune.cli.output import without_native_output


def test_what_native_code_prints_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    sys.stdout.write("before\n")
    with without_native_output():
        os.write(1, b"written\n")
        ctypes.CDLL(None).puts(b"buffered")  # as C code prints: its own buffer is emptied later
    sys.stdout.write("after\n")
    assert capfd.readouterr().out == "before\nafter\n"


def test_a_failure_gives_the_output_back(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), without_native_output():
        raise KeyError
    sys.stdout.write("after\n")
    assert capfd.readouterr().out == "after\n"
