"""Test the recall on mistakes that were written from the frameworks' sources (``tests/data/planted_rows.yaml``)."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ms_tune.diagnostics import Severity
from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.code_files import parse_python
from ms_tune.lint.engine import lint
from tests.files import read_data
from tests.jobs import commands_in
from tests.lint.code import lint_python
from tests.oracle.make_megatron import SOURCES
from tests.oracle.megatron_layers import run

ROWS = read_data("planted_rows.yaml")
# The share that is reported; of calls, those are missed whose arguments are refused together.
LEAST = {"scripts": 0.95, "calls": 0.75, "steps": 0.95}
# Runs each program by itself and answers with what it raises.
_CHILD = """
import json, os, sys, tempfile
import mindspore, mindspore.dataset
os.chdir(tempfile.mkdtemp())
for text in json.load(sys.stdin):
    if not os.fork():
        try:
            exec(text, {})
            said = ""
        except Exception as error:
            said = type(error).__name__
        os.write(int(sys.argv[1]), (said + "\\n").encode())
        os._exit(0)
    os.wait()
"""


def words_of(row: dict[str, Any] | str) -> list[str]:
    """Return the arguments of a script; of a base alone if its name is given."""
    if isinstance(row, str):
        return shlex.split(ROWS["bases"][row])
    options: dict[str, list[str]] = {}
    for word in [*words_of(row["base"]), *shlex.split(row["add"])]:
        if word.startswith("--"):
            options.pop(word, None)
            options[word] = []
            last = word
        else:
            options[last].append(word)
    return [word for name in options if name not in row.get("drop", "").split() for word in (name, *options[name])]


def errors_of(row: dict[str, Any] | str, release: str) -> list[str]:
    head = "#!/bin/bash\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n# Ascend\ntorchrun --nproc_per_node 8 "
    text = f"{head}pretrain_gpt.py {shlex.join(words_of(row))}\n"
    checks = built_in(Dialect.MEGATRON)
    found = [
        one
        for command in commands_in(Path("run.sh"), text, release)
        for one in lint(command, Dialect.MEGATRON, checks, release)
    ]
    return [one.id for one in found if one.severity is Severity.ERROR]


def program_of(text: str, place: str) -> str:
    return f"{ROWS['heads'][place]}{text}\n"


def reported(text: str, place: str) -> bool:
    """Return whether the last line of a program, or the one with a mark, is reported."""
    program = program_of(text, place)
    lines = program.splitlines()
    marked = [number for number, line in enumerate(lines, 1) if line.endswith("#!")] or [len(lines)]
    return any(one.location.line == marked[0] for one in lint_python(parse_python(program, Path("train.py"))))


@pytest.mark.slow
def test_scripts_are_refused_and_their_bases_are_not() -> None:
    missed = [row for row in ROWS["scripts"] if not errors_of(row, row["release"])]
    assert len(missed) <= (1 - LEAST["scripts"]) * len(ROWS["scripts"]), missed
    assert not [
        errors_of(base, release) for base in ROWS["bases"] for release in ("2.3", "26.1") if errors_of(base, release)
    ]


@pytest.mark.parametrize("kind", ["calls", "steps"])
def test_lines_of_programs_are_reported(kind: str) -> None:
    missed = [text for text in ROWS[kind] if not reported(text, kind)]
    assert len(missed) <= (1 - LEAST[kind]) * len(ROWS[kind]), missed


@pytest.mark.parametrize("text", ROWS["sound"])
def test_sound_lines_are_not_reported(text: str) -> None:
    assert not reported(text, "steps")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mindspore") is None, reason="MindSpore is not installed")
def test_mindspore_refuses_each_call() -> None:
    read, write = os.pipe()
    programs = json.dumps([program_of(text, "calls") for text in ROWS["calls"]])
    command = [sys.executable, "-W", "ignore", "-c", _CHILD, str(write)]
    subprocess.run(command, input=programs, text=True, check=True, capture_output=True, pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as answers:
        said = answers.read().splitlines()
    assert [text for text, one in zip(ROWS["calls"], said, strict=True) if not one] == []


@pytest.mark.slow
@pytest.mark.skipif(SOURCES not in os.environ, reason=f"{SOURCES} names no sources of MindSpeed-LLM")
def test_the_releases_stop_at_each_script() -> None:
    by_release = defaultdict(list)
    for row in ROWS["scripts"]:
        by_release[row["release"]].append([word.replace("./hf", "/") for word in words_of(row)])
    for release, cases in by_release.items():
        answers = map(json.loads, run(Path(os.environ[SOURCES], release), cases, "quick", "config"))
        assert [case for case, one in zip(cases, answers, strict=True) if "stopped" not in one] == []
