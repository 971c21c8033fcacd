"""Run many command lines with one version of ms-tune, for ``same_answers.py``.

Processes of the version's own interpreter answer one command line after the other: starting one for each would take
most of the time. A process that crashes or times out is replaced. They run this script, which needs only ``main`` of
ms-tune.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

from answer_differences import Answer

_CHUNK = 400  # command lines per process
SKIPPED = (".git", "__pycache__")  # folders that are skipped
_ANSWER, _EXAMPLES = "--answer", "--write-examples"
_DATA = ("checklists", "yaml_templates")  # next to the package in a checkout, inside it in a wheel
_DIALECT_OF_SCRIPTS = "megatron"
# Files that a script of MindSpeed-MM names are in the comments of an example.
_FILE_IN_COMMENT = re.compile(r"^# (\S+\.(?:json|yaml)): (.*)$", re.MULTILINE)


class Task(NamedTuple):
    """One command line about one file."""

    command: str  # its name: "lint", "lint@1.6"
    words: tuple[str, ...]  # all but the file
    folder: Path  # in which the command runs
    file: str  # relative to the folder; ending with "/", a folder

    def key(self, version: str) -> str:
        """Return the key of a stored answer: the version, the command line, and the contents of the file and its folder."""
        path = self.folder / self.file
        head = json.dumps([version, self.words, self.folder.name, self.file, _held(path.parent)])
        return hashlib.sha256(f"{head}{_held(path)}".encode()).hexdigest()


@cache
def _held(path: Path) -> str:
    """Return a digest of a file, or of a folder with all its contents."""
    if path.is_dir():
        inner = [one for one in sorted(path.iterdir()) if one.name not in SKIPPED]
        content = "".join(f"{one.name} {_held(one)}\n" for one in inner).encode()
    else:
        content = path.read_bytes() if path.is_file() else b""
    return hashlib.sha256(content).hexdigest()


class Version:
    """One version of ms-tune.

    Args:
        python: The interpreter.
        checkout: The folder that ms-tune is imported from; None for the installed package.
        scratch: A folder to create for the version's files.
        limit: The timeout of an answer in seconds.
    """

    def __init__(self, python: str, checkout: Path | None, scratch: Path, limit: float) -> None:
        self._command = [python, str(Path(__file__).resolve())]
        self._scratch, self._limit = scratch, limit
        scratch.mkdir()
        own = {"HOME": str(scratch), "LANG": "C", "MS_TUNE_CACHE": str(scratch / "cache")}
        self._environment = {"PATH": os.environ.get("PATH", ""), **own}
        if checkout is not None:
            self._environment["PYTHONPATH"] = str(checkout.resolve())
        self.package = Path(json.loads(self._run(_ANSWER)))  # where ms-tune is

    def write_examples(self, into: Path) -> None:
        """Put the examples of its checks into a folder, and the templates, examples and test data beside it."""
        self._run(_EXAMPLES, str(into))
        for name in ("yaml_templates", "examples", "tests/data"):
            if (self.package.parent / name).is_dir():
                shutil.copytree(self.package.parent / name, into / name)

    def digest(self) -> str:
        """Return a digest that is unique to the version."""
        found = hashlib.sha256(self._command[0].encode())
        for place in (self.package, *(self.package.parent / name for name in _DATA)):
            for file in sorted(place.rglob("*")):
                if file.is_file() and file.suffix != ".pyc":
                    found.update(f"{file.relative_to(self.package.parent)}\n".encode() + file.read_bytes())
        return found.hexdigest()

    def answers(self, tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, Answer]]:
        """Yield the answers to command lines in order, with this many processes in parallel."""
        chunks: list[list[Task]] = []
        for task in tasks:
            if not chunks or len(chunks[-1]) == _CHUNK or chunks[-1][0].folder != task.folder:
                chunks.append([])
            chunks[-1].append(task)
        with ThreadPoolExecutor(jobs) as pool:
            for found in pool.map(self._answers, chunks):
                yield from found

    def _run(self, *words: str) -> str:
        """Return the output of this script with the version's interpreter."""
        run = subprocess.run(
            [*self._command, *words],
            env=self._environment,
            cwd=self._scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if run.returncode:
            sys.exit(f"{self._command[0]} has no ms-tune that can be used")
        return run.stdout

    def _answers(self, tasks: Sequence[Task]) -> list[tuple[Task, Answer]]:
        """Yield the answers to command lines that run in the same folder."""
        found: list[tuple[Task, Answer]] = []
        while len(found) < len(tasks):
            with subprocess.Popen(
                [*self._command, _ANSWER],
                env=self._environment,
                cwd=tasks[0].folder,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            ) as process:
                if process.stdout is not None:
                    process.stdout.readline()  # where ms-tune is
                while len(found) < len(tasks) and process.poll() is None:
                    found.append((tasks[len(found)], self._answer(process, tasks[len(found)])))
        return found

    def _answer(self, process: subprocess.Popen[str], task: Task) -> Answer:
        begin, line = time.monotonic(), ""
        late = Timer(self._limit, process.kill)
        late.start()
        with contextlib.suppress(BrokenPipeError):
            if process.stdin is not None and process.stdout is not None:
                process.stdin.write(json.dumps([*task.words, task.file]) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
        late.cancel()
        if not line:
            code = process.wait()
            slow = time.monotonic() - begin >= self._limit
            return Answer(f"no answer in {self._limit:g} s" if slow else f"the process ended with {code}", "", "")
        code, *texts = json.loads(line)
        # Paths that differ from run to run; the longest first, as one may be inside another.
        places = {str(task.folder): "<FOLDER>", str(self._scratch): "<HOME>", str(self.package.parent): "<MS_TUNE>"}
        for place in sorted(places, key=len, reverse=True):
            texts = [text.replace(place, places[place]) for text in texts]
        return Answer(code, *texts)


def _answer_command_lines() -> None:
    """Print the location of ms-tune, then answer each command line of standard input; runs in the version's process."""
    run: Any = import_module("ms_tune.cli.main").main
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    print(json.dumps(str(_package())), file=answers, flush=True)
    for line in sys.stdin:
        out, reported = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(reported):
            try:
                code: int | str = int(run(json.loads(line)))
            except BaseException as error:  # noqa: BLE001 - whatever that version lets pass
                code = f"{type(error).__name__}: {error}"
        print(json.dumps([code, out.getvalue(), reported.getvalue()]), file=answers, flush=True)


def _package() -> Path:
    return Path(sys.modules["ms_tune"].__file__ or "").parent


def _is_there(module: str) -> bool:
    return find_spec(module.rpartition(".")[0]) is not None and find_spec(module) is not None


def _write_examples(into: Path) -> None:
    """Write each example into a folder, with settings that state its kind and check; runs in the version's process."""
    # The module of releases, by its names from today's back to the first.
    name = next(one for one in ("facts.query", "facts.releases", "frameworks.releases") if _is_there(f"ms_tune.{one}"))
    releases: Any = import_module(f"ms_tune.{name}")
    fits: Any = import_module("ms_tune.lint.engine").matches
    for rule in import_module("ms_tune.lint.rules").all_rules():
        for dialect in rule.dialects if rule.bad else ():
            settings = {}
            if rule.language == "yaml" or dialect.value == _DIALECT_OF_SCRIPTS:
                versions = (releases.default_release(dialect), *reversed(releases.served(dialect)))
                version = next((one for one in versions if fits(one, rule.versions)), versions[0])
                settings = {"framework-version": version}
                if dialect.value != _DIALECT_OF_SCRIPTS:  # which only the suffix shows
                    settings["dialect"] = dialect.value
            if rule.profiles:
                settings["profile"] = min(rule.profiles)
            for kind, example in (("bad", rule.bad), ("good", rule.good)):
                named = _FILE_IN_COMMENT.findall(example)
                # Of MindSpeed-MM an example is a script, the sections of an FSDP2 config, or a tools.json.
                script = dialect.value == "mindspeed-mm" and not example.startswith(("parallel", "{"))
                suffix = "sh" if script else {"python": "py"}.get(rule.language, rule.language)
                own = "tools.json" if example.startswith("{") else f"example.{suffix}"
                toml = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
                folder = into / f"{rule.id}-{dialect.value}-{kind}"
                folder.mkdir()
                for name, text in (("ms-tune.toml", toml), (own, example), *named):
                    (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, which contains a `lint` and a `memory`
    if sys.argv[1] == _ANSWER:
        _answer_command_lines()
    else:
        _write_examples(Path(sys.argv[2]))
