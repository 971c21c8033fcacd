"""Test the mistakes that the frameworks' code and guides describe, each with a minimal config (or script).

``documented_traps/*.yaml`` is the list: groups with the source, the dialect, and a version or profile if it matters,
and ``given`` text that precedes each of the group's configs. A mistake states what goes wrong, shows it in ``config``,
and names the ``checks`` that report it. Instead, ``sound`` names checks that must be silent, and ``unseen`` states why
no check can detect it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.code_files import parse_python
from ms_tune.lint.engine import lint
from ms_tune.lint.environment.settings import parse_shell
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language
from tests.files import read_data
from tests.lint.code import lint_environment, lint_python

FOLDER = Path(__file__).parent / "documented_traps"
OUTCOMES = ("checks", "sound", "unseen")


@dataclass(frozen=True)
class Mistake:
    says: str
    source: str
    dialect: str
    text: str
    version: str | None
    profile: str
    outcome: tuple[str, Any]


def read_mistakes() -> list[Mistake]:
    found = []
    for path in sorted(FOLDER.glob("*.yaml")):
        for group in read_data(path):
            for one in group["traps"]:
                (outcome,) = (name for name in OUTCOMES if name in one)
                found.append(
                    Mistake(
                        says=one["says"],
                        source=group["source"],
                        dialect=group["dialect"],
                        text=f"{group.get('given', '')}{one['config']}\n",
                        version=one.get("version", group.get("version")),
                        profile=one.get("profile", "performance"),
                        outcome=(outcome, one[outcome]),
                    )
                )
    return found


MISTAKES = read_mistakes()


def lint_mistake(trap: Mistake) -> list[str]:
    """Return the ids of the checks that report the mistake."""
    if trap.dialect == "shell":
        findings = lint_environment(parse_shell(trap.text, Path("run.sh")), profile=trap.profile)
    elif trap.dialect == "python":
        findings = lint_python(parse_python(trap.text, Path("train.py")), profile=trap.profile)
    else:
        dialect = Dialect(trap.dialect)
        source = parse_source(trap.text, Path("config.yaml"))
        findings = lint(source, dialect, built_in(dialect), trap.version, trap.profile)
    for finding in findings:
        assert finding.id != "MST001", finding.message.say(Language.EN)
        assert all(finding.message.say(language) for language in Language)
    return [finding.id for finding in findings]


@pytest.mark.slow
@pytest.mark.parametrize("trap", MISTAKES, ids=lambda trap: f"{trap.dialect}: {trap.says}")
def test_every_documented_mistake_is_reported(trap: Mistake) -> None:
    outcome, named = trap.outcome
    ids = lint_mistake(trap)
    if outcome == "checks":
        assert named, f"{trap.source}: {trap.says}: no check is named"
        assert set(named) <= set(ids)
    elif outcome == "sound":
        assert not set(named) & set(ids)
    else:
        assert len(named.split()) > 3, "say why no check can tell"
