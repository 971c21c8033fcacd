from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from ms_tune.cli.main import main
from ms_tune.lint.discover import STDIN, Target
from ms_tune.lint.own import OWN_RULES
from ms_tune.lint.rules import Rule, all_rules
from ms_tune.lint.run import Job, check_file
from ms_tune.lint.settings import Settings
from ms_tune.lint.topics import by_topic
from ms_tune.render.rule_markdown import MARK, reference
from ms_tune.resources import data_folder

RULES = all_rules()
DOCS = Path(__file__).parents[2] / "docs" / "rules"


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["rule", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_a_rule_by_id_and_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "mst102")
    assert code == 0
    assert out.startswith("MST102 number-read-as-text: A number is written so that YAML reads a text\n")
    assert "Why it matters on Ascend:\nYAML 1.1 wants" in out
    assert "Bad:\n  optimizer:\n    type: AdamW\n    eps: 1e-8\n" in out
    assert "How to mend it:\nwrite <number>\n'ms-tune lint --fix' does it" in out
    assert "Evidence:\n  PyYAML 6.0: yaml/resolver.py\n" in out
    assert run(capsys, "number-read-as-text")[1] == out
    assert "\n\nMST509 profiling-on" in run(capsys, "MST102", "MST509")[1]
    assert "为什么重要（昇腾）" in run(capsys, "--lang", "zh", "MST102")[1]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_can_be_explained(capsys: pytest.CaptureFixture[str], rule: Rule) -> None:
    for language, why in zip(("en", "zh"), rule.why, strict=True):
        code, out, _ = run(capsys, "--lang", language, rule.id)
        assert code == 0
        assert why in out
        assert "{" not in "".join(rule.help) or "{{" not in "".join(rule.help)


def test_all(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "--all")[1].splitlines()
    assert len(lines) == len(RULES)
    assert lines[0].split() == ["MST001", "internal-error", "A", "check", "itself", "failed"]
    entries = json.loads(run(capsys, "--all", "--json")[1])["rules"]
    assert [entry["id"] for entry in entries] == [rule.id for rule in RULES]
    entry = next(entry for entry in entries if entry["id"] == "MST102")
    assert entry["fix"] == "safe"
    assert set(entry["title"]) == {"en", "zh"}
    assert json.loads(run(capsys, "MST102", "--json")[1])["rules"] == [entry]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "which check? name one, or use --all"),
        (("MST999",), "there is no check 'MST999'"),
        (("profiling",), "did you mean profiling-on?"),
        (("zzzzzz",), "'ms-tune rule --all' lists them"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert words in err


@pytest.mark.parametrize("rule", OWN_RULES[1:], ids=lambda rule: rule.id)
def test_examples_of_the_linters_own_rules(rule: Rule) -> None:
    for example, count in ((rule.bad, 1), (rule.good, 0)):
        job = Job(settings=Settings(None, Path("/")), stdin=f"trainer: {{}}\n{example}".encode())
        report = check_file(Target(STDIN, named=True), job).report
        assert report is not None
        assert sum(finding.id == rule.id for finding in report.findings) == count


def test_the_reference_is_up_to_date() -> None:
    pages = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")}
    wanted = reference(by_topic(RULES))
    stale = sorted(name for name in {*pages, *wanted} if pages.get(name) != wanted.get(name))
    assert stale == [], "run: ms-tune rule --markdown docs/rules"


def test_chapters_name_checks_that_there_are() -> None:
    entries = yaml.safe_load((data_folder("checklists") / "reference" / "topics.yaml").read_text(encoding="utf-8"))
    named = Counter(name for topic in entries["topics"] for row in topic["checks"] for name in row)
    assert set(named) <= {rule.name for rule in RULES}
    assert max(named.values()) == 1
    assert len(RULES) - len(named) < len(RULES) / 20, "new checks want a place in checklists/reference/topics.yaml"
    for topic in by_topic(RULES):
        for text in (topic.title, topic.text):
            assert text.en.isascii()
            assert re.search("[一-鿿]", text.zh)


def test_the_reference_hangs_together() -> None:
    pages = reference(by_topic(RULES))
    links = Counter(re.findall(r"\]\(([^)#]+)\)", pages["README.md"]))
    assert links == dict.fromkeys((name for name in pages if name != "README.md"), 2)  # by chapter and by category
    anchors = re.findall(r'<a id="([a-z]+)">', pages["README.md"])
    assert {anchor for page in pages.values() for anchor in re.findall(r"#([a-z]+)\)", page)} == set(anchors)
    for name, page in pages.items():
        assert page.startswith(MARK)
        assert page.count("```") % 2 == 0
        if name != "README.md":
            assert re.search("[一-鿿]", page)
            for example in re.findall(r"## Bad.*?```yaml\n(.*?)```", page, re.DOTALL):
                assert example.strip()


def test_writing_the_reference(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "old-rule.md").write_text(f"{MARK}\n", encoding="utf-8")
    (tmp_path / "mine.md").write_text("mine\n", encoding="utf-8")
    code, _, err = run(capsys, "--markdown", str(tmp_path))
    assert code == 0
    assert err == f"{len(RULES) + 1} pages written to {tmp_path}\n"
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {*reference(by_topic(RULES)), "mine.md"}


def test_own_checklists_are_explained_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = (DOCS.parent / "lint.md").read_text(encoding="utf-8")
    example = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0]
    assert yaml.safe_load(example)
    (tmp_path / "own.yaml").write_text(example, encoding="utf-8")
    assert run(capsys, "--checklist", str(tmp_path / "own.yaml"), "OUR001")[0] == 0
