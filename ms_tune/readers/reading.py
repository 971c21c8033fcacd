"""What every reader says of a file that cannot be read."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ms_tune.errors import TraceError, nearby, reason_of
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Around what reads a file or a folder.

    Raises:
        TraceError: It cannot be opened, read or listed.
    """
    try:
        yield
    except FileNotFoundError:
        raise TraceError(msg("trace.folder.absent"), nearby(path), path=path) from None
    except OSError as error:
        hint = msg("trace.unreadable.hint") if isinstance(error, PermissionError) else None
        raise TraceError(msg("trace.unreadable", detail=reason_of(error)), hint, path=path) from error
