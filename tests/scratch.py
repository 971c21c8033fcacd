"""Provide a folder per test process, for files that many tests share; `conftest.py` removes it at the end.

`atexit` does not work: the processes of pytest-xdist end without it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

_ALL = tempfile.TemporaryDirectory(prefix="ms-tune-tests-")


def new_folder(name: str) -> Path:
    """Return a new, empty folder, whose name begins with ``name``."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=_ALL.name))


def remove() -> None:
    """Remove all folders."""
    _ALL.cleanup()
