"""What launch scripts start, read once for all that asks about one script."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ms_tune.source.shell.read import read_launches

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.source.shell.read import Launches


@lru_cache(maxsize=1)
def launches_in(path: Path, text: str) -> Launches:
    """What a script starts.

    It is kept for the script that was read last, until :func:`forget`: the files that it sources may change.

    Args:
        path: The script.
        text: Its text, with or without a byte order mark.
    """
    return read_launches(path, text.removeprefix("\ufeff"))


def forget() -> None:
    """Read the next script anew, whatever was read before."""
    launches_in.cache_clear()
