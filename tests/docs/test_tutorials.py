"""Check that each line of a screen on a page is output of the command above it."""

from __future__ import annotations

import re
import shlex
import shutil

import pytest

pytest.importorskip("numpy", reason="the extra 'report' is not installed")

from collections.abc import Iterator
from pathlib import Path

from ms_tune.cli.main import main
from tests.docs.examples import ROOT
from tests.dryrun.machine import needs_mindspore

_SIMULATED = ("does-it-fit.md", "does-it-fit.zh.md", "dryrun.md", "dryrun.zh.md")
_READ = ("slow-to-fast.md", "slow-to-fast.zh.md")
COLUMNS = "100"
_BLOCK = re.compile(r"^```(?P<kind>console|text)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
_TIME = re.compile(r"\d[\d.,]* ?(?:s|min|h|秒|分钟|分)(?![\w/])")  # of this machine


def steps(text: str) -> Iterator[tuple[list[list[str]], list[str]]]:
    """Yield each block of commands with the lines of the screen that follows it, if there is one."""
    commands: list[list[str]] = []
    for found in _BLOCK.finditer(text):
        lines = found["body"].splitlines()
        if found["kind"] == "text":
            yield commands, [line for line in lines if line.strip() not in ("", "…")]
            commands = []
        else:
            if commands:
                yield commands, []
            commands = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    yield commands, []


def screen_lines(text: str) -> set[str]:
    """Return the lines of a screen without times and trailing blanks."""
    return {_TIME.sub("TIME", line.rstrip()) for line in text.splitlines()}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=(pytest.mark.mindspore, needs_mindspore)) for name in _SIMULATED),
        *_READ,
    ],
)
def test_screens_are_what_the_commands_print(
    name: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("examples", "yaml_templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", COLUMNS)
    wrong, screens = [], 0
    for commands, screen in steps((ROOT / "docs" / name).read_text("utf-8")):
        printed = ""
        for words in commands:
            # The page's `check` comes before its `fit`, whose table it would use.
            monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / "empty" if "check" in words else cache))
            if words[0] == "cp":
                shutil.copy(words[1], words[2])
            else:
                main([*words[1:], "--lang", "zh" if ".zh." in name else "en"])
                printed += capsys.readouterr().out
        screens += bool(screen)
        wrong += [line for line in screen if not screen_lines(line) <= screen_lines(printed)]
    assert screens
    assert wrong == []
