"""Run MindFormers of one release on configs, in a separate process."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.oracle import wheels

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

_ROOT = Path(__file__).parents[2]  # where tests are a package


@dataclass(frozen=True, slots=True)
class Refusal:
    """The exception of MindFormers, and the step of its start; an endless loop counts as an exception."""

    step: str
    error: str
    text: str


def why_missing(version: str) -> str | None:
    """Return why a release cannot run here, or None."""
    for module in ("numpy", "regex"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    found = wheels.wheel(version)
    return None if isinstance(found, Path) else found


class Child:
    """A program of this folder in a separate process, which answers each line of JSON with one line.

    Args:
        version: The release, as in :data:`tests.oracle.wheels.RELEASES`.
        program: Its module.
        *arguments: Its arguments after the wheel's path.
    """

    def __init__(self, version: str, program: str, *arguments: str) -> None:
        command = [sys.executable, "-m", f"tests.oracle.{program}", str(wheels.wheel(version)), *arguments]
        self.version = version
        self._process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def ask(self, question: object) -> Any:  # noqa: ANN401 - whatever the program answers
        """Return the answer of the program."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the framework's process ended"
        return json.loads(line)


class Framework(Child):
    """A release that runs configs.

    Args:
        version: The release, as in :data:`tests.oracle.wheels.RELEASES`.
        folder: A folder for the files of the process.
        program: A program that reports exceptions, or one (``static_child``) that also reports layers.
    """

    def __init__(self, version: str, folder: Path, program: str = "framework_child") -> None:
        super().__init__(version, program, version, str(folder))

    def refusal(self, text: str) -> Refusal | None:
        """Return the failure of a config, or None if it starts."""
        answer = self.ask(text)
        return None if answer is None else Refusal(**answer)


_started: dict[tuple[str, str], Framework] = {}


def close_all() -> None:
    """End the releases that the tests of this process shared."""
    for one in _started.values():
        one.__exit__(None, None, None)
    _started.clear()


def framework_of(releases: Sequence[str], program: str = "framework_child") -> Any:  # noqa: ANN401 - pytest's own type
    """Return a fixture: each release, started once for all modules, in its own folder; tests are skipped where it cannot run."""

    @pytest.fixture(scope="module", params=releases)
    def framework(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Framework:
        missing = why_missing(request.param)
        if missing:
            pytest.skip(missing)
        asked = (request.param, program)
        if asked not in _started:
            _started[asked] = Framework(request.param, tmp_path_factory.mktemp("framework"), program)
        return _started[asked]

    return framework
