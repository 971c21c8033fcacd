"""Lint real files with one inserted defect each: nearly all are found, and none is explained by another cause.

``MS_TUNE_ORACLE_PLANTED=190`` sets the number. The configs are those of the wheels and ms-tune's templates;
``MS_TUNE_MEGATRON_SOURCES`` has scripts (``RELEASE/MindSpeed-LLM``), and ``MS_TUNE_ORACLE_PROGRAMS`` is a folder of
programs with MindSpore. ``MS_TUNE_ORACLE_SEED`` draws others.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import pytest

from ms_tune import lint_files
from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.facts.query import data_folder
from ms_tune.lint.result import LintRequest
from ms_tune.text import Language
from tests.oracle import planted, wheels

MANY = int(os.environ.get("MS_TUNE_ORACLE_PLANTED", "0"))
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "0"))
_FOUND = 0.95  # the required share of found defects
_CLEAN = 12  # unchanged files without any error
_RELEASES = ("1.9", "2.0", "2.1")
# Costs of time in a program, which refuse nothing, are reported as info.
_REPORTED_AS_INFO = {"MST907", "MST911", "MST913", "MST914", "MST931", "MST904", "MST810", "MST910"}

pytestmark = pytest.mark.skipif(not MANY, reason="MS_TUNE_ORACLE_PLANTED says how many defects to plant")


@dataclass(frozen=True, slots=True)
class File:
    """A real file, the defects for its kind, and its release."""

    name: str
    text: str
    forms: tuple[planted.Form, ...]
    release: str | None = None


@cache
def files() -> tuple[tuple[File, ...], ...]:
    """Return the files by kind; kinds without files are left out."""
    kinds = (tuple(_configs()), tuple(_templates("mindspeed_ms", planted.CORE)), tuple(_scripts()), tuple(_programs()))
    static, *others = kinds
    dynamic = tuple(file for file in static if file.forms is planted.DYNAMIC)
    return tuple(kind for kind in (tuple(file for file in static if file not in dynamic), dynamic, *others) if kind)


def _configs() -> Iterator[File]:
    for release in _RELEASES:
        found = wheels.wheel(release)
        if isinstance(found, str):
            pytest.skip(found)
        for name, text in wheels.configs(release).items():
            if not re.match(r"configs/.*(?:train|tune)_.*yaml$", name):
                continue
            dynamic = re.search(r"(?m)^parallelism:", text) is not None
            yield File(f"{release}/{name}", text, planted.DYNAMIC if dynamic else planted.STATIC, release)
    yield from _templates("mindformers", planted.STATIC)
    yield from _templates("mindformers_pynative", planted.DYNAMIC)


def _templates(folder: str, forms: tuple[planted.Form, ...]) -> Iterator[File]:
    for path in sorted(data_folder("yaml_templates").joinpath(folder).glob("*.yaml")):
        yield File(path.name, path.read_text(encoding="utf-8"), forms)


def _scripts() -> Iterator[File]:
    sources = os.environ.get("MS_TUNE_MEGATRON_SOURCES")
    for path in sorted(Path(sources).glob("*/MindSpeed-LLM/**/*.sh")) if sources else ():
        text = path.read_text(encoding="utf-8", errors="replace")
        if re.search(r"(?m)^[^#\n]*(?:pre|post)train_gpt\.py", text):
            yield File(str(path.relative_to(sources or "")), text, planted.SCRIPTS)


def _programs() -> Iterator[File]:
    folder = os.environ.get("MS_TUNE_ORACLE_PROGRAMS")
    for path in sorted(Path(folder).rglob("*.py")) if folder else ():
        text = path.read_text(encoding="utf-8", errors="replace")
        if re.search(r"(?m)^(?:import|from) mindspore\b", text) and len(text) < 50_000:
            yield File(str(path.relative_to(folder or "")), text, planted.PROGRAMS)


def describe_finding(finding: Diagnostic) -> tuple[str, str]:
    """Return the text of a finding without its position."""
    return finding.id, finding.message.say(Language.EN)


def heard(file: File, text: str, folder: Path) -> tuple[Diagnostic, ...]:
    """Return the findings in a text that replaces a file."""
    path = folder / Path(file.name).name
    path.write_text(text, encoding="utf-8")
    report = lint_files(path, request=LintRequest(framework_version=file.release, settings=False, baseline=False))
    assert not report.errors, f"{file.name}: {[str(one) for one in report.errors]}\n{text}"
    assert not any(one.id == "MST001" for one in report.findings), f"{file.name}: a check crashed"
    return tuple(one for one in report.findings if one.severity is not Severity.INFO or one.id in _REPORTED_AS_INFO)


def test_planted_defects_are_found_and_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random, kinds = Random(SEED), files()  # noqa: S311 - files are drawn, no secrets
    before: dict[str, Counter[tuple[str, str]]] = {}
    missed: list[str] = []
    wrong: list[str] = []
    broken: set[str] = set()
    seen = tries = 0
    while seen < MANY and tries < 50 * MANY:
        tries += 1
        file = random.choice(random.choice(kinds))
        form = random.choice(file.forms)
        text = form.plant(file.text, random)
        if text is None or text == file.text:
            continue
        if file.name not in before:
            found = heard(file, file.text, tmp_path)
            before[file.name] = Counter(map(describe_finding, found))
            broken |= {file.name} if any(one.severity is Severity.ERROR for one in found) else set()
        if file.name in broken:
            continue  # it stops for another reason, before the defect is reached
        seen += 1
        new = {name for name, _ in Counter(map(describe_finding, heard(file, text, tmp_path))) - before[file.name]}
        if not new & set(form.ids):
            (wrong if new else missed).append(f"{file.name}: {form.name}: {sorted(new)}")
    with capsys.disabled():
        lines = "".join(
            f"\n  {one}" for one in (*(f"missed {one}" for one in missed), *(f"wrong {one}" for one in wrong))
        )
        print(f"\nseed {SEED}: {seen - len(missed) - len(wrong)} of {seen} found in {len(kinds)} kinds of files{lines}")  # noqa: T201 - the figure is the point
    assert seen == MANY
    assert not wrong
    assert len(missed) <= (1 - _FOUND) * seen


def test_what_is_right_has_no_errors(tmp_path: Path) -> None:
    # Some of the frameworks' own configs and scripts are refused unchanged, so they cannot be controls.
    right = [file for kind in files() for file in kind if file.release is None and file.forms is not planted.SCRIPTS]
    for file in Random(SEED).sample(right, min(_CLEAN, len(right))):  # noqa: S311 - as above
        errors = [one.id for one in heard(file, file.text, tmp_path) if one.severity is Severity.ERROR]
        assert not errors, file.name
