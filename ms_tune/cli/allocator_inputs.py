"""A line that shows how far a replay or a plan is."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from ms_tune.render.console import Console
    from ms_tune.texts import Message

_EVERY = 0.1  # seconds between two looks of a progress line


class ProgressLine(AbstractContextManager["ProgressLine"]):
    """One line on standard error that is rewritten on a terminal; elsewhere nothing is shown."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = sys.stderr.isatty()
        self._shown = False
        self._next = 0.0

    def show(self, message: Message, share: float) -> None:
        """Show how much of something is done."""
        now = time.monotonic()
        if not self._live or now < self._next:
            return
        self._next = now + _EVERY
        filled = round(max(0.0, min(share, 1.0)) * 20)
        sys.stderr.write(f"\r\033[K{self._console.say(message)} [{'#' * filled}{'.' * (20 - filled)}] {share:4.0%}")
        sys.stderr.flush()
        self._shown = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
