"""Check that each line of a screen on a page is output of the command above it."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest

pytest.importorskip("numpy", reason="the extra 'report' is not installed")

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ms_tune.cli import dryrun, fit_run
from ms_tune.cli.main import main
from ms_tune.fit import measure
from ms_tune.native import cache_root
from tests.docs.examples import ROOT
from tests.dryrun.machine import needs_mindspore

_READ = ("slow-to-fast",)
COLUMNS = "100"
_RECORDED = ROOT / "tests" / "data" / "does_it_fit_runs.json"
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


def run_once(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs each request once: the languages of a page differ in words only."""
    results: dict[str, Any] = {}

    def run_or_remember(request: object, *arguments: Any) -> Any:  # noqa: ANN401 - as the engine's function
        key = repr(request)
        if key not in results:
            results[key] = run(request, *arguments)
        return results[key]

    return run_or_remember


def furnish_cache(cache: Path) -> None:
    """Put into a cache what other tests built for MindSpore, and the recorded figures of the small dryruns of `fit`.

    Whether they are still right shows: the page's `fit` simulates its plan and prints by how much the prediction was off.
    Delete the file to record them again.
    """
    (cache / "fit").mkdir(parents=True)
    built = cache_root() / "stand-in"
    built.mkdir(exist_ok=True)
    (cache / "stand-in").symlink_to(built)
    if _RECORDED.exists():
        for name, figures in json.loads(_RECORDED.read_text("utf-8")).items():
            (cache / "fit" / f"{name}.json").write_text(json.dumps(figures), "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        # Ten whole stages, over a minute; other tests run its other commands, and each kind of simulation.
        pytest.param("does-it-fit", marks=(pytest.mark.mindspore, needs_mindspore, pytest.mark.more)),
        pytest.param("dryrun", marks=(pytest.mark.mindspore, needs_mindspore)),
        *_READ,
    ],
)
def test_screens_are_what_the_commands_print(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("examples", "yaml_templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", COLUMNS)
    furnish_cache(tmp_path / "cache")
    monkeypatch.setattr(measure, "simulated_by", lambda: "recorded")
    for module, name in ((dryrun, "dryrun_job"), (fit_run, "fit_config")):
        monkeypatch.setattr(module, name, run_once(getattr(module, name)))
    for name, language in ((f"{page}.md", "en"), (f"{page}.zh.md", "zh")):
        wrong, screens = [], 0
        for commands, screen in steps((ROOT / "docs" / name).read_text("utf-8")):
            printed = ""
            for words in commands:
                # The page's `check` comes before its `fit`, whose table it would use.
                cache = "empty" if "check" in words else "cache"
                monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / cache))
                if words[0] == "cp":
                    shutil.copy(words[1], words[2])
                else:
                    main([*words[1:], "--lang", language])
                    printed += capsys.readouterr().out
            screens += bool(screen)
            wrong += [line for line in screen if not screen_lines(line) <= screen_lines(printed)]
        assert screens
        assert wrong == [], name
    if page == "does-it-fit" and not _RECORDED.exists():
        runs = {file.stem: file.read_text("utf-8") for file in sorted(tmp_path.glob("cache/fit/[0-9a-f]*.json"))}
        lines = (f'"{name}": {json.dumps(json.loads(figures))}' for name, figures in runs.items())
        _RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
