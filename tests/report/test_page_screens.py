"""Screens of pages about real runs: exactly what the command above each of them prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ms_tune.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [f"{name}{language}.md" for name in ("metrics", "profile", "slow-to-fast") for language in ("", ".zh")]
_SCREEN = re.compile(
    r"^```console\n\$ ms-tune (?P<command>[^\n]*)\n```\n\n```text\n(?P<screen>.*?)^```", re.MULTILINE | re.DOTALL
)


@pytest.mark.parametrize("page", PAGES)
def test_screens_are_what_the_commands_print(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    screens = list(_SCREEN.finditer((ROOT / "docs" / page).read_text("utf-8")))
    assert screens
    for found in screens:
        main([*shlex.split(found["command"]), "--lang", "zh" if ".zh." in page else "en"])
        assert capsys.readouterr().out == found["screen"]
