from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from ms_tune.lint.result import FileReport, LintRequest
from ms_tune.lint.runner import STDIN, LintRun, LintTarget, check_file
from ms_tune.lint.settings import ProjectSettings
from ms_tune.text import Language
from tests.lint.few import make_only_few

NOWHERE = ProjectSettings(None, Path("/"))


@pytest.fixture(autouse=True)
def few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    make_only_few(monkeypatch)


def report(text: str, *, fix: Literal["safe", "unsafe"] | None = None) -> FileReport:
    outcome = check_file(LintTarget(STDIN, named=True), LintRun(LintRequest(stdin=text.encode(), fix=fix), NOWHERE))
    assert isinstance(outcome, FileReport), outcome
    return outcome


def lint_lines(text: str) -> tuple[list[tuple[str, int]], int]:
    one = report(f"trainer: {{}}\n{text}")
    return [(finding.name, finding.location.line - 1) for finding in one.findings], one.ignored


@pytest.mark.parametrize(
    "text",
    [
        "profile: True  # ms-tune: ignore[profiling-on] measuring this week\n",
        "profile: True  # ms-tune: ignore[MST509]\n",
        "profile: True  # 说明  # ms-tune: ignore[profiling-on]\n",
        "# ms-tune: ignore[profiling-on]\nprofile: True\n",
        "# ms-tune: ignore[profiling-on]\n# because\n\nprofile: True\n",
        "# ms-tune: file-ignore[profiling-on]\nseed: 1\nprofile: True\n",
        "profile: True\nseed: 1  # ms-tune: file-ignore[profiling-on]\n",
        "recompute_config:\n  recompute: [0]\n  a_key:\n    - a\n    - b  # ms-tune: ignore[unexpected-training-key]\n",
    ],
)
def test_comments_that_ignore(text: str) -> None:
    assert lint_lines(text) == ([], 1)


def test_several_checks_in_one_comment() -> None:
    text = "context: {save_graphs: True, max_device_memory: 64GB}  # ms-tune: ignore[save-graphs-on, MST508] why\n"
    assert lint_lines(text) == ([], 2)
    assert lint_lines(text.replace("MST508", "MST509")) == ([("memory-limit-too-high", 1), ("unused-ignore", 1)], 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # On another line; two lines above; after a value, where only its own line counts.
        ("profile: True\nseed: 1  # ms-tune: ignore[profiling-on]\n", [("profiling-on", 1), ("unused-ignore", 2)]),
        ("seed: 1  # ms-tune: ignore[profiling-on]\nprofile: True\n", [("unused-ignore", 1), ("profiling-on", 2)]),
        ("profile: True  # ms-tune: ignore[save-graphs-on]\n", [("profiling-on", 1), ("unused-ignore", 1)]),
        ("profile: False  # ms-tune: ignore[no-such-check]\n", [("unused-ignore", 1)]),
        ("profile: True  # ms-tune: ignore\n", [("profiling-on", 1), ("malformed-ignore", 1)]),
        ("profile: True  # ms-tune: noqa[profiling-on]\n", [("profiling-on", 1), ("malformed-ignore", 1)]),
        # No comments at all: inside strings and blocks, or glued to a word.
        ("profile: True\nseed: '# ms-tune: ignore[profiling-on]'\n", [("profiling-on", 1)]),
        ("profile: True\nseed: a#ms-tune:ignore[profiling-on]\n", [("profiling-on", 1)]),
        # For a check that does not apply to this version: it may apply elsewhere.
        ("seed: 1  # ms-tune: ignore[deterministic-context]\n", []),
    ],
)
def test_comments_that_do_not(text: str, expected: list[tuple[str, int]]) -> None:
    assert lint_lines(text) == (expected, 0)


def test_messages_in_both_languages() -> None:
    text = "trainer: {}\nseed: 1  # ms-tune: ignore[profiling-on]\nrun_mode: train  # ms-tune: nothing\n"
    unused, malformed = report(text).findings
    assert unused.message.say(Language.EN) == "'profiling-on' is ignored here, but has no findings here"
    assert "没有" in malformed.message.say(Language.ZH)
    assert unused.help is not None
    assert unused.help.say(Language.EN) == "remove 'profiling-on' from the comment"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1  # ms-tune: ignore[profiling-on] why\nb: 2\n", "a: 1\nb: 2\n"),
        ("a: 1\n# ms-tune: ignore[profiling-on] why\nb: 2\n", "a: 1\nb: 2\n"),
        ("a: 1  # words # ms-tune: ignore[profiling-on]\n", "a: 1  # words\n"),
        ("a: 1\r\n  # ms-tune: file-ignore[profiling-on]\r\n", "a: 1\r\n"),
        ("a: 1\n# ms-tune: ignore[profiling-on]", "a: 1\n"),
        ("profile: True  # ms-tune: ignore[profiling-on]\n", None),
        ("a: 1  # ms-tune: ignore[profiling-on, save-graphs-on]\n", None),
    ],
)
def test_unused_comments_can_be_removed(text: str, expected: str | None) -> None:
    start = "trainer: {}\nrunner_config: {}\nseed: 1\n"
    assert report(start + text, fix="safe").text == (
        "" if expected is None and "profile" in text else start + (expected or text)
    )
