"""Which functions of ms-tune a command goes through."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import ms_tune
from ms_tune.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

PACKAGE = str(Path(ms_tune.__file__).parent)


class Walk:
    """Every function of ms-tune that is entered while a command runs: how often, and on the way from where.

    A function is called ``room/module.function``; what stands in angle brackets, such as a comprehension, is part of the one around it.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.ways: dict[
            str, list[str]
        ] = {}  # the functions from the command to the first call of each, itself the last

    def run(self, arguments: Sequence[str]) -> int:
        """Run a command, and return its exit code."""
        before = sys.getprofile()
        sys.setprofile(self._look)
        try:
            return main(arguments)
        finally:
            sys.setprofile(before)

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        name = name_of(frame) if event == "call" else None
        if name is None:
            return
        self.calls[name] += 1
        if name not in self.ways:
            way: list[str | None] = []
            here: FrameType | None = frame
            while here is not None:
                way.append(name_of(here))
                here = here.f_back
            self.ways[name] = [one for one in reversed(way) if one is not None]


def name_of(frame: FrameType) -> str | None:
    """What the function of a frame is called; None of another package, and of a part of a function."""
    code = frame.f_code
    if not code.co_filename.startswith(PACKAGE) or code.co_name.startswith("<"):
        return None
    module = code.co_filename[len(PACKAGE) + 1 :].removesuffix(".py").replace("\\", "/")
    return f"{module}.{code.co_name}"
