"""Compare complete configs before and after fixes, as MindFormers itself reads them.

A safe fix may change only the keys that it names: not the filled template, not the model's class, not the behaviour of
a layer, not the step where the start stops. An unsafe one must not stop a run that started. A second run of the fixes
changes nothing. The configs are those in the wheel of each release, with ``MS_TUNE_FIX_CORPUS`` every YAML file of that
folder, too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from ms_tune.enums import Dialect
from ms_tune.facts.query import VERSIONS
from ms_tune.lint.result import FileReport, LintRequest
from ms_tune.lint.runner import STDIN, LintRun, LintTarget, check_file
from ms_tune.lint.settings import ProjectSettings
from tests.oracle import wheels
from tests.oracle.framework import Framework, framework_of

CORPUS = os.environ.get("MS_TUNE_FIX_CORPUS")
STEP = int(os.environ.get("MS_TUNE_FIX_STEP", "1"))  # every so manieth file of the corpus
NOWHERE = ProjectSettings(None, Path("/"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CORPUS and "MS_TUNE_TEST_MORE" not in os.environ, reason="MS_TUNE_TEST_MORE=1 runs these"),
]


framework = framework_of(VERSIONS, "static_child")


def configs(version: str) -> Iterator[tuple[str, str]]:
    """Return every config with its name."""
    yield from wheels.configs(version).items()
    for file in sorted(Path(CORPUS).rglob("*.y*ml"))[::STEP] if CORPUS else ():
        yield file.name, file.read_bytes().decode(errors="replace")


def linted(text: str, version: str, fix: Literal["safe", "unsafe"] | None) -> FileReport | None:
    request = LintRequest(
        Dialect.MINDFORMERS, version, stdin=text.encode(), fix=fix, settings=False, baseline=False, processes=1
    )
    report = check_file(LintTarget(STDIN, named=True), LintRun(request, NOWHERE))
    return report if isinstance(report, FileReport) else None


def without(value: Any, names: set[str]) -> Any:  # noqa: ANN401 - whatever YAML holds
    """Return values without keys of these names, and without sections that become empty."""
    if isinstance(value, dict):
        left = {key: without(one, names) for key, one in value.items() if key not in names}
        return {key: one for key, one in left.items() if one not in ({}, None)}
    return [without(one, names) for one in value] if isinstance(value, list) else value


def names_of(report: FileReport, *, unsafe: bool) -> set[str]:
    """Return the last parts of the keys that fixes change."""
    fixes = (finding.fix for finding in report.findings if finding.fix and (unsafe or finding.fix.safe))
    return {str(item) for fix in fixes for change in fix.changes for item in (change.path[-1:])}


def reading(framework: Framework, text: str, names: set[str]) -> dict[str, Any]:
    answer = framework.ask(text)
    return {
        "config": without(answer.pop("config"), names),
        "built": without(answer.pop("built"), names),
        **{key: answer.get(key) for key in ("step", "error", "asked", "counts")},
    }


def wrong_with(framework: Framework, text: str, seen: Counter[str]) -> Iterator[str]:
    """Return the faults of the fixes of a config."""
    version = framework.version
    plain = linted(text, version, None)
    if plain is None:
        seen["not checked"] += 1
        return
    names = names_of(plain, unsafe=False)
    safe = linted(text, version, "safe")
    assert safe is not None
    if safe.fixed:
        seen["safe fixes"] += safe.fixed
        again = linted(safe.text, version, "safe")
        if again is None or again.fixed:
            yield "safe fixes are not done at once"
        before, after = reading(framework, text, names), reading(framework, safe.text, names)
        yield from (f"{key}: {before[key]} -> {after[key]}" for key in before if before[key] != after[key])
    unsafe = linted(text, version, "unsafe")
    assert unsafe is not None
    if unsafe.fixed > safe.fixed:
        seen["unsafe fixes"] += unsafe.fixed - safe.fixed
        again = linted(unsafe.text, version, "unsafe")
        if again is None or again.fixed:
            yield "unsafe fixes are not done at once"
        before, after = reading(framework, text, set()), reading(framework, unsafe.text, set())
        if after["error"] and not before["error"]:
            yield f"stops after unsafe fixes: {after['step']} {after['error']}"
    seen["configs"] += 1


def test_fixes(framework: Framework, capsys: pytest.CaptureFixture[str]) -> None:
    seen: Counter[str] = Counter()
    wrong = [f"{name}: {one}" for name, text in configs(framework.version) for one in wrong_with(framework, text, seen)]
    with capsys.disabled():
        print(f"\n{framework.version}: {dict(seen)}")  # noqa: T201 - the count is the point
    assert not wrong, "\n".join(one[:300] for one in wrong)
    assert seen["configs"]
