"""Plant defects in the configs that MindFormers ships: lint reports each at its key, and the config without it stays as it was.

``tests/data/planted_mindformers.json`` has one defect a row: area; kind (``stop``, ``late``, ``ignored`` or ``damage``);
release; config; settings that are made first; the defect; the keys where a finding is right; and the line of MindFormers
that stops, ignores or damages. The rows were written from MindFormers' sources, without a look at the checks.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from ms_tune.diagnostics import Severity
from ms_tune.enums import Dialect
from ms_tune.facts.query import VERSIONS
from ms_tune.lint.result import FileReport, LintRequest
from ms_tune.lint.runner import STDIN, LintRun, LintTarget, check_file
from ms_tune.lint.settings import ProjectSettings
from tests.files import read_data
from tests.oracle import wheels

_ROWS = read_data("planted_mindformers.json")
_DROP = "(drop)"
_MISSED = 18  # of all rows


def changed(data: Any, change: dict[str, Any]) -> Any:  # noqa: ANN401 - whatever YAML holds
    """Return a config with settings set or dropped."""
    made = deepcopy(data)
    for path, value in change.items():
        *rooms, last = (int(one) if one.isdigit() else one for one in path.split("."))
        at = made
        for room in rooms:
            if isinstance(at, dict) and not isinstance(at.get(room), (dict, list)):
                at[room] = {}
            at = at[room]
        if value == _DROP:
            at.pop(last, None)
        else:
            at[last] = deepcopy(value)
    return made


def findings(data: object, release: str, dialect: Dialect) -> Counter[tuple[str, str]]:
    """Return the errors and warnings of a config: check and key."""
    text = yaml.safe_dump(data, sort_keys=False).encode()
    request = LintRequest(dialect, release, stdin=text, settings=False, baseline=False, processes=1)
    report = check_file(LintTarget(STDIN, named=True), LintRun(request, ProjectSettings(None, Path("/"))))
    assert isinstance(report, FileReport)
    shown = (one for one in report.findings if one.severity in (Severity.ERROR, Severity.WARNING))
    return Counter((one.id, ".".join(map(str, one.path))) for one in shown)


def is_at(path: str, key: str) -> bool:
    """Return whether a path is a key, or below it; ``*`` in the key stands for any name."""
    parts, wanted = path.split("."), key.split(".")
    return len(parts) >= len(wanted) and all(b in ("*", a) for a, b in zip(parts, wanted, strict=False))


@pytest.mark.slow
def test_planted_defects_are_reported_at_their_keys(capsys: pytest.CaptureFixture[str]) -> None:
    if not all(isinstance(wheels.wheel(version), Path) for version in VERSIONS):
        pytest.skip("not every release is at hand")
    missed: list[str] = []
    counts: dict[str, list[int]] = {}
    for area, _, release, config, before, change, keys, why in _ROWS:
        dialect = Dialect.MINDFORMERS_PYNATIVE if area.startswith("dyn") else Dialect.MINDFORMERS
        control = changed(yaml.safe_load(wheels.configs(release)[f"configs/{config}.yaml"]), before)
        more = findings(changed(control, change), release, dialect) - findings(control, release, dialect)
        found = any(is_at(path, key) for _, path in more for key in keys)
        count = counts.setdefault(area, [0, 0])
        count[0] += found
        count[1] += 1
        if not found:
            missed.append(f"{area} {release} {config}: {change} ({why}) {dict(more)}")
    with capsys.disabled():
        print("\n", *(f"{area} {found}/{number}" for area, (found, number) in counts.items()))  # noqa: T201 - the figures are the point
        print("\n".join(missed))  # noqa: T201 - to look at
    assert len(missed) <= _MISSED
