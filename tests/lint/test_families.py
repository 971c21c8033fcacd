"""Test families of checks: one rule has one id, and the family's id and name select all of its checks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.enums import Dialect
from ms_tune.lint.baseline import fingerprints
from ms_tune.lint.checklist import Check, Checklist, built_in, combined
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source

CHECKS = built_in(Dialect.MINDFORMERS)
CONFIG = """runner_config: {{batch_size: 1}}
parallel_config: {{pipeline_stage: 1}}
use_legacy: False
model:
  model_config: {{n_routed_experts: 10, n_group: 4, topk_group: 2, add_bias_linear: True}}{}
"""
BOTH = ["MST33505", "MST33508"]


def members(name: str) -> list[Check]:
    return [check for check in CHECKS if check.family and check.family.name == name]


def lint_family(tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: str, comment: str = "") -> list[str]:
    (tmp_path / "a.yaml").write_text(CONFIG.format(comment), encoding="utf-8")
    select = () if "--select" in arguments else ("--ignore", "MST4,MST5")
    main(["lint", str(tmp_path / "a.yaml"), "--json", "--no-config", *select, *arguments])
    findings = json.loads(capsys.readouterr().out)["findings"]
    return sorted(one["id"] for one in findings if one["id"].startswith("MST335"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), BOTH),
        (("--select", "MST335"), BOTH),
        (("--select", "impossible-experts"), BOTH),
        (("--select", "MST33508"), ["MST33508"]),
        (("--select", "experts-not-in-groups"), ["MST33508"]),
        (("--ignore", "MST335"), []),
        (("--ignore", "impossible-experts"), []),
        (("--ignore", "linear-bias-with-experts"), ["MST33508"]),
    ],
)
def test_one_rule_or_the_family_is_selected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: list[str]
) -> None:
    assert lint_family(tmp_path, capsys, *arguments) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [("MST335", []), ("impossible-experts", []), ("MST33505", ["MST33508"]), ("experts-not-in-groups", ["MST33505"])],
)
def test_comments_name_one_rule_or_the_family(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: str, expected: list[str]
) -> None:
    assert lint_family(tmp_path, capsys, comment=f"  # ms-tune: ignore[{names}] known") == expected


def test_a_checklist_turns_off_one_rule_or_the_family() -> None:
    def left(name: str) -> int:
        return len(CHECKS) - len(combined(CHECKS, [Checklist((), frozenset({name}))]))

    assert left("MST335") == left("impossible-experts") == len(members("impossible-experts"))
    assert left("MST33501") == left("no-expert-at-all") == 1


def test_a_baseline_from_before_the_families_still_holds() -> None:
    text = CONFIG.format("")
    one = lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS, members("impossible-experts"))[-1]
    # The fingerprint from the time when `MST335` was the id of the check.
    assert fingerprints(text, [one]) == [("a0b2964c0bc20926", 1)]


def test_the_members_of_a_family_are_explained_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rule", "MST445"]) == 0
    explained = re.findall(r"^(MST\d+) ", capsys.readouterr().out, re.MULTILINE)
    assert explained == [check.id for check in members("impossible-glm-network")]
    assert main(["rule", "glm-compressed-mask", "--json"]) == 0
    (rule,) = json.loads(capsys.readouterr().out)["rules"]
    assert rule["family"] == {"id": "MST445", "name": "impossible-glm-network"}
