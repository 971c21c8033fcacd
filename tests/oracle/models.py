"""What a release's own classes make of a model's section, asked of a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.oracle import wheels

if TYPE_CHECKING:
    from types import TracebackType

_ROOT = Path(__file__).parents[2]  # where tests are a package


@dataclass(frozen=True, slots=True)
class Made:
    """A network: its layers, those that predict further tokens, and which of the former have experts; or what was raised."""

    layers: int = 0
    mtp: int = 0
    experts: tuple[bool, ...] = ()
    error: str | None = None
    text: str = ""


class Models:
    """Asks a release about sections.

    Args:
        version: The release, as in :data:`tests.oracle.wheels.RELEASES`.
        mode: 0 for the static graph, 1 for the dynamic one.
    """

    def __init__(self, version: str, mode: int) -> None:
        command = [sys.executable, "-m", "tests.oracle.model_child", str(wheels.wheel(version)), str(mode)]
        self._process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Models:  # noqa: PYI034 - Self is not in typing before 3.11
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def make(self, section: dict[str, Any]) -> Made:
        """What becomes of a section."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(section) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the framework's process ended"
        found = json.loads(line)
        return Made(**found | {"experts": tuple(found.get("experts", ()))})
