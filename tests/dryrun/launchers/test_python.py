"""Test ``--python``: a script's Python is another environment, with stand-ins built for its MindSpore."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.dryrun import command as room
from ms_tune.dryrun.cann_sim.environment import Backend, Cann, MindSpore, find_mindspore
from ms_tune.errors import UsageError


def interpreter(folder: Path, prints: str) -> str:
    """Write a program that replaces an interpreter: it records its use and prints a fixed answer."""
    path = folder / "python-of-mine"
    path.write_text(f"#!/bin/sh\n{prints}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_another_interpreter_is_asked_for_its_mindspore(tmp_path: Path) -> None:
    python = interpreter(tmp_path, 'echo noise; echo \'["2.7.1", "/env/mindspore"]\'')
    assert find_mindspore(python) == MindSpore("2.7.1", Path("/env/mindspore"))


@pytest.mark.parametrize(
    ("prints", "says"),
    [
        (
            "echo \"ModuleNotFoundError: No module named 'x'\" >&2; exit 1",
            "MindSpore is not installed in --python .*: ModuleNotFoundError",
        ),
        ("echo hello", "MindSpore is not installed in"),
    ],
)
def test_one_without_mindspore_is_refused(tmp_path: Path, prints: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        find_mindspore(interpreter(tmp_path, prints))


def test_one_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be run"):
        find_mindspore(str(tmp_path / "absent"))


@pytest.mark.slow
def test_python_in_a_script_means_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[str | None] = []

    def find(python: str | None) -> MindSpore:
        asked.append(python)
        return MindSpore("2.9.0", tmp_path)

    found: Callable[[str | None], MindSpore] = find
    monkeypatch.setattr(room, "find_mindspore", found)
    monkeypatch.setattr(room, "prepare_cann", lambda *_: Cann(Backend.STAND_IN, tmp_path / "cann"))
    python = interpreter(tmp_path, f'echo "mine: $*"\nexec {sys.executable} "$@"')
    Path("train.py").write_text("print('trains')\n", encoding="utf-8")
    Path("pretrain.sh").write_text("python train.py\nmsrun --worker_num 2 --join=True train.py\n", encoding="utf-8")
    main(["dryrun", "--python", python, "--run-dir", "kept", "pretrain.sh"])
    capsys.readouterr()
    log = Path("kept/script/log.txt").read_text("utf-8")
    assert log.count("mine: ") == 2
    assert log.count("trains") == 2
    assert asked == [python]


def test_one_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dryrun", "--python", "no-such-python", "--", "true"]) == 2
    assert "program not found: no-such-python" in capsys.readouterr().err
