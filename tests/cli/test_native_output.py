"""What native libraries print is no part of a command's output."""

from __future__ import annotations

import ctypes
import os

import pytest

from ms_tune.cli.native_output import without_native_output


def test_what_native_code_prints_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    print("before")
    with without_native_output():
        os.write(1, b"written\n")
        ctypes.CDLL(None).puts(b"buffered")  # as C code prints: its own buffer is emptied later
    print("after")
    assert capfd.readouterr().out == "before\nafter\n"


def test_a_failure_gives_the_output_back(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), without_native_output():
        raise KeyError
    print("after")
    assert capfd.readouterr().out == "after\n"
