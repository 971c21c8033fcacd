"""Compare screens on pages with the exact output of the command above each, and test the length of commands' screens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.report.console import text_width

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


BEFORE, AFTER, JOB = "examples/slow_run/before.log", "examples/slow_run/after.log", "examples/out_of_memory.yaml"
MEASURED = ("--config", JOB, "--chip", "910B2", "--cards", "8", "--gbs", "8")
COMMANDS = [
    (["check", JOB], range(5, 9)),
    (["check", "yaml_templates/mindformers_pynative/deepseek3_671b_dynamic.yaml"], range(5, 9)),
    (["metrics", BEFORE], range(3, 7)),
    (["metrics", BEFORE, *MEASURED], range(3, 7)),
    (["metrics", AFTER, "--baseline", BEFORE, *MEASURED], range(3, 7)),
    (["profile", "examples/slow_run/profile"], range(10, 26)),
    (["migrate", "yaml_templates/mindformers/deepseek3_671b.yaml"], range(10, 31)),
    (["migrate", "yaml_templates/mindspeed_ms/llama2_7b.yaml"], range(10, 31)),
]
_COLOUR = re.compile(r"\033\[[0-9;]*m")
_UNIT = re.compile(r"\d\n *(?:[KMG]iB|ms|s|%|TFLOP/s|tokens?|steps?|ranks?|NPUs?|layers?|个|步|层|卡)\b")


@pytest.mark.drawn(8)
@pytest.mark.parametrize("terminal", [(80, "en"), (140, "en"), (80, "zh"), (140, "zh")], ids=str)
@pytest.mark.parametrize(("command", "lines"), COMMANDS, ids=lambda value: value[0] if isinstance(value, list) else "")
def test_a_screen_is_short_and_as_wide_as_the_terminal(
    command: list[str],
    lines: range,
    terminal: tuple[int, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    width, language = terminal
    monkeypatch.setenv("COLUMNS", str(width))
    main([*command, "--lang", language])
    screen = capsys.readouterr().out
    shown = screen.splitlines()
    assert len(shown) in lines
    assert [line for line in shown if text_width(line) > width and "ms-tune" not in line] == []
    assert not _UNIT.search(screen)
    main([*command, "--lang", language, "-q"])
    (verdict,) = capsys.readouterr().out.splitlines()
    assert verdict.startswith(shown[0])
    assert command[0] == "profile" or shown[-1].startswith(("next: ", "下一步："))
    monkeypatch.setenv("FORCE_COLOR", "1")
    main([*command, "--lang", language])
    assert _COLOUR.sub("", capsys.readouterr().out) == screen
