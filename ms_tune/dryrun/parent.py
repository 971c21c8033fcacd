"""A training process must not outlive the ms-tune that started it, even if that is killed outright."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PARENT = "MS_TUNE_PARENT"
_PR_SET_PDEATHSIG = 1


def as_parent() -> dict[str, str]:
    """The variable that tells a process which one started it."""
    return {_PARENT: str(os.getpid())}


def end_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to end this process with its parent (prctl(2)); end it now if that is gone already.

    Args:
        parent: The number of the parent; None for the one that the environment names. The parent may have number 1: it
            has in a container whose entry point it is.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    expected = str(parent) if parent is not None else os.environ.get(_PARENT)
    if expected is not None and expected != str(os.getppid()):
        sys.exit(1)  # it was killed before the line above: there is nobody to tell us any more
