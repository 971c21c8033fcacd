"""Test ``ms-tune runs``: what is no run folder of ms-tune, or is in use, is neither listed nor removed."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from ms_tune.cli import dryrun_inputs
from ms_tune.cli.main import main
from ms_tune.dryrun.stored_runs import mark_in_use
from ms_tune.report.console import Console
from ms_tune.text import Language

OLD, NEW = "20200101-120000-llama-abcd_123", "29990101-120000-llama-abcd_124"
# No folders of runs: another name, no date, no manifest, somebody else's manifest, one that is no object, a link, a file.
OTHERS = ["results", "20201399-120000-llama-abcd_125", "20200101-120000-llama-abcd_126"]
OTHERS += ["20200101-120000-llama-abcd_127", "20200101-120000-llama-abcd_128", "20200101-120000-llama-abcd_129"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "ms-tune-runs"
    texts = ['{"ms_tune": "1"}', '{"ms_tune": "1"}', None, '{"name": "theirs"}', "[" * 99_999]
    for name, text in [(OLD, texts[0]), (NEW, texts[0]), *zip(OTHERS[:-1], texts, strict=True)]:
        (place / name).mkdir(parents=True)
        if text is not None:
            (place / name / "manifest.json").write_text(text)
    (place / OTHERS[-1]).symlink_to(place / OLD)
    (place / OLD / "report.json").write_text('{"verdict": "tight"}')
    (place / OLD / "rank_0").mkdir()
    (place / OLD / "rank_0" / "memory_block.csv").write_bytes(bytes(3 << 20))
    return place


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, bool]:
    """Return the listed runs, and which were removed."""
    assert main(["runs", "--json", *arguments]) == 0
    return {Path(one["folder"]).name: one["removed"] for one in json.loads(capsys.readouterr().out)["runs"]}


def test_only_run_folders_that_are_old_and_not_in_use_are_removed(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs"]) == 0
    shown = capsys.readouterr().out
    assert [word in shown for word in (OLD, NEW, "3.0 MiB", "tight", *OTHERS)] == [True] * 4 + [False] * len(OTHERS)
    assert listed(capsys, "--older-than", "30") == {OLD: False}
    assert listed(capsys, str(place)) == listed(capsys, str(place.parent)) == {OLD: False, NEW: False}
    with mark_in_use(place / OLD):
        assert listed(capsys, "--older-than", "30", "--clean") == {OLD: False}
    assert listed(capsys, "--older-than", "30", "--clean") == {OLD: True}
    assert {one.name for one in place.iterdir()} == {NEW, *OTHERS}


@pytest.mark.parametrize(("answer", "left"), [("y\n", False), ("n\n", True), ("", True)])
def test_all_are_removed_only_if_the_user_says_so(
    place: Path, answer: str, monkeypatch: pytest.MonkeyPatch, *, left: bool
) -> None:
    assert main(["runs", "--clean"]) == 2  # no terminal to ask on
    stdin = io.StringIO(answer)
    stdin.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", stdin)
    assert main(["runs", "--clean"]) == 0
    assert ((place / OLD).exists(), (place / OTHERS[0]).exists()) == (left, True)


def test_a_dryrun_says_that_its_runs_take_much_room(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(Language.EN)
    dryrun_inputs.warn_of_many(place / OLD, console)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(dryrun_inputs, "_MANY_BYTES", 1 << 20)
    dryrun_inputs.warn_of_many(place / OLD, console)
    assert "take 3.0 MiB; 'ms-tune runs --older-than 7 --clean'" in capsys.readouterr().err
