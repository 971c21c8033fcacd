"""Keeps what native libraries print out of a command's own output."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_STDOUT = 1


@contextmanager
def without_native_output() -> Iterator[None]:
    """What native code prints to standard output meanwhile is dropped.

    HiGHS, which SciPy 1.17 brings, prints a line about ``transformNewIntegerFeasibleSolution`` in some searches, whatever it is asked to
    tell: ``--json`` would be no JSON. Nothing of Python's own may be printed meanwhile.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(_STDOUT)
    except OSError:  # closed: nothing can be printed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, _STDOUT)
        yield
    finally:
        with suppress(OSError, AttributeError, TypeError):  # a system whose C library cannot be asked
            ctypes.CDLL(None).fflush(None)  # what it has printed may wait in its buffer
        os.dup2(kept, _STDOUT)
        os.close(kept)
        os.close(nowhere)
