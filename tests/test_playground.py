"""Check that the page's engine, in Pyodide under Node.js, answers as the commands do; `tests/browser` tries the page itself."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.playground import LANGUAGES, ROOT, answers_of_commands, inputs

SITE = ROOT / "site" / "playground"
ASKS = ("lint", "check", "plan", "fix")
ADDED = {"help", "unfixable", "notes", "skipped", "name", "screen"}  # to the JSON of the commands


def without_additions(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {key: without_additions(each) for key, each in value.items() if key not in ADDED}
    return [without_additions(each) for each in value] if isinstance(value, list) else value


def ask(playground: Path, questions: Sequence[Mapping[str, object]]) -> list[Any]:
    file = playground.parent / "questions.json"
    file.write_text(json.dumps(questions), encoding="utf-8")
    command = ["node", str(SITE / "answer.mjs"), str(playground), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[Any] = json.loads(done.stdout)
    return found


def test_answers_are_those_of_the_commands(playground: Path, tmp_path: Path) -> None:
    expected = answers_of_commands(tmp_path)
    keys = [(name, language, one) for name in inputs() for language in LANGUAGES for one in ASKS]
    asked = [{"ask": one, "name": name, "text": inputs()[name], "language": language} for name, language, one in keys]
    found = dict(zip(keys, ask(playground, asked), strict=True))
    assert [key for key, answer in found.items() if "defect" in answer] == []
    for (name, language), (lint, check, plan) in expected.items():
        assert without_additions(found[name, language, "lint"]) == without_additions(lint), (name, language)
        answer = found[name, language, "check"]
        same = (
            {"files": [answer], "failed": []} if "error" not in answer else {"files": [], "failed": [answer["error"]]}
        )
        assert without_additions(same) == without_additions(check), (name, language)
        jobs = found[name, language, "plan"].get("jobs")
        assert jobs == (plan and plan.get("jobs", [{"program": None, "plan": plan}])), (name, language)
    assert found["mistakes.yaml", "en", "fix"]["count"] > 0
    assert sum(len(lint["findings"]) for lint, *_ in expected.values()) > 50


def test_a_pasted_text_gets_a_name_by_its_content(playground: Path) -> None:
    names = {"mistakes.yaml": "train.yaml", "pretrain.sh": "run.sh", "train.py": "train.py", "job.env": "run.sh"}
    asked = [{"ask": "lint", "name": "../..", "text": inputs()[name], "language": "en"} for name in names]
    assert [answer["name"] for answer in ask(playground, asked)] == list(names.values())


def test_nothing_on_the_page_is_from_elsewhere() -> None:
    for file in (*SITE.glob("*.mjs"), *SITE.glob("*.html"), *SITE.glob("*.css"), SITE / "package-lock.json"):
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert (
            re.findall(r"https?:|//\w+\.\w+/|resolved|innerHTML|outerHTML|insertAdjacent|(?<!-)\beval\b", text) == []
        ), file.name


@pytest.mark.parametrize("pattern", [r"(?<!\.)\bsay\(\"([\w.-]+)\"", r"data-text=\"([\w.-]+)\""])
def test_texts_are_there_in_both_languages(pattern: str) -> None:
    english, chinese = (SITE / "texts.mjs").read_text("utf-8").split("  zh: {")
    keys = [re.findall(r"^    (?:\"([\w.-]+)\"|(\w+)):", part, re.MULTILINE) for part in (english, chinese)]
    assert keys[0] == keys[1]
    known = {quoted or bare for quoted, bare in keys[0]}
    files = (*SITE.glob("*.mjs"), SITE / "index.html")
    assert {name for file in files for name in re.findall(pattern, file.read_text("utf-8"))} - known == set()
