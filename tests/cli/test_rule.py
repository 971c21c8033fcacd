from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from ms_tune.cli.main import main
from ms_tune.facts.query import data_folder
from ms_tune.lint.result import FileReport, LintRequest
from ms_tune.lint.rules import RuleEntry, all_rules, course
from ms_tune.lint.runner import STDIN, LintRun, LintTarget, check_file
from ms_tune.lint.settings import BUILTIN_RULES, ProjectSettings
from ms_tune.report.rule import MARK, PAGES, reference

RULES = all_rules()


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
    assert out.startswith("MST102 number-read-as-text: A number that YAML reads as a string\n")
    assert "Why it matters on Ascend:\nYAML 1.1 requires" in out
    assert "Bad:\n  optimizer:\n    type: AdamW\n    eps: 1e-8\n" in out
    assert (
        "How to fix it:\nwrite it with a decimal point and a signed exponent: <number>\n'ms-tune lint --fix' fixes it"
        in out
    )
    assert "Evidence:\n  PyYAML 6.0: yaml/resolver.py\n" in out
    assert run(capsys, "number-read-as-text")[1] == out
    assert "\n\nMST509 profiling-on" in run(capsys, "MST102", "MST509")[1]
    assert "为什么重要（昇腾）" in run(capsys, "--lang", "zh", "MST102")[1]


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_rule_can_be_explained(capsys: pytest.CaptureFixture[str], language: str) -> None:
    code, out, _ = run(capsys, "--lang", language, *(rule.id for rule in RULES))
    assert code == 0
    starts = [out.index(f"{rule.id} {rule.name}") for rule in RULES]
    assert starts == sorted(starts)
    for rule, start, end in zip(RULES, starts, [*starts[1:], len(out)], strict=True):
        explained = out[start:end]
        assert getattr(rule.why, language) in explained
        assert getattr(rule.title, language) in explained.splitlines()[0]
    assert "{{" not in "".join(part for rule in RULES for part in rule.help)


@pytest.mark.slow
def test_all(capsys: pytest.CaptureFixture[str]) -> None:
    for language in ("en", "zh"):
        chapters = run(capsys, "--all", "--lang", language)[1].split("\n\n")
        topics = [topic for part in course(RULES) for topic in part.topics]
        for topic, (head, *lines) in zip(topics, map(str.splitlines, chapters), strict=True):
            assert head.startswith(getattr(topic.title, language))
            assert [line.split()[:2] for line in lines] == [[rule.id, rule.name] for rule in topic.rules]
    entries = json.loads(run(capsys, "--all", "--json")[1])["rules"]
    assert [entry["id"] for entry in entries] == [rule.id for rule in RULES]
    entry = next(entry for entry in entries if entry["id"] == "MST102")
    assert entry["fix"] == "safe"
    assert set(entry["title"]) == {"en", "zh"}
    assert json.loads(run(capsys, "MST102", "--json")[1])["rules"] == [entry]


@pytest.mark.drawn(5)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no check specified; give its name, or use --all"),
        (("MST999",), "unknown check 'MST999'"),
        (("profiling",), "did you mean profiling-on?"),
        (("zzzzzz",), "run 'ms-tune rule --all' to list all checks"),
        (
            ("MST9999",),
            "run 'ms-tune rule --all' to list all checks",
        ),  # MST919 has another number, and is another check
        (("MTS101",), "did you mean MST101?"),
        (("mst-101",), "did you mean MST101?"),
        (("unused-kye",), "did you mean unused-key?"),
        (("learning",), "checks mention it: ms-tune rule --search learning"),
        (("recompute",), "checks mention it: ms-tune rule --search recompute"),
        (("重计算",), "checks mention it: ms-tune rule --search "),
        (("recompute", "--lang", "zh"), "个检查项提到它：ms-tune rule --search recompute"),
        (("full recompute",), "checks mention it: ms-tune rule --search 'full recompute'"),
        (("--search", "no-such-word"), "no check contains 'no-such-word'"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert words in err


@pytest.mark.parametrize("rule", [one for one in BUILTIN_RULES if one.bad], ids=lambda rule: rule.id)
def test_examples_of_the_linters_own_rules(rule: RuleEntry) -> None:
    for example, count in ((rule.bad, 1), (rule.good, 0)):
        job = LintRun(LintRequest(stdin=f"trainer: {{}}\n{example}".encode()), ProjectSettings(None, Path("/")))
        report = check_file(LintTarget(STDIN, named=True), job)
        assert isinstance(report, FileReport), report
        assert sum(finding.id == rule.id for finding in report.findings) == count


@pytest.mark.slow
def test_the_reference_has_a_page_for_every_check_which_others_do_not_change(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["rule", "--markdown", str(tmp_path)]) == 0
    pages = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.md")}
    topics = [topic.id for part in course(RULES) for topic in part.topics]
    chapters = {f"chapter-{name}{suffix}" for name in topics for suffix in (".md", ".zh.md")}
    assert set(pages) == {"README.md", "README.zh.md", *chapters, *(f"{rule.name}.md" for rule in RULES)}
    fewer = reference(course(RULES[::2]))
    assert all(pages[f"{rule.name}.md"] == fewer[f"{rule.name}.md"] for rule in RULES[::2])
    assert all(rule.id in pages["README.md"] or rule.name in pages["README.md"] for rule in RULES)
    (tmp_path / "old.md").write_text(pages["README.md"], encoding="utf-8")
    (tmp_path / "own.md").write_text("mine", encoding="utf-8")
    assert main(["rule", "--markdown", str(tmp_path)]) == 0
    assert (tmp_path / "own.md").exists()
    assert not (tmp_path / "old.md").exists()
    assert capsys.readouterr().err


def test_chapters_name_checks_that_there_are() -> None:
    entries = yaml.safe_load((data_folder("checklists") / "reference" / "topics.yaml").read_text(encoding="utf-8"))
    rows = (row for topic in entries["topics"] for group in topic["groups"] for row in group["checks"])
    named = Counter(name for row in rows for name in row)
    families = {rule.family.name for rule in RULES if rule.family is not None}
    assert set(named) <= {rule.name for rule in RULES} | families
    assert max(named.values()) == 1
    placed = [rule for rule in RULES if rule.name in named or (rule.family is not None and rule.family.name in named)]
    assert len(RULES) - len(placed) < len(RULES) / 20, "new checks want a place in checklists/reference/topics.yaml"
    assert sorted(name for part in entries["parts"] for name in part["topics"]) == sorted(
        topic["id"] for topic in entries["topics"]
    )


def test_the_course_says_everything_in_both_languages() -> None:
    parts = course(RULES)
    topics = [topic for part in parts for topic in part.topics]
    texts = [text for part in parts for text in (part.title, part.text)]
    texts += [text for topic in topics for text in (topic.title, topic.text)]
    texts += [group.text for topic in topics for group in topic.groups]
    for text in texts:
        assert text.en.isascii()
        assert re.search("[一-鿿]", text.zh)
        assert not re.search("[一-鿿][,;:?!()]|[,;?!][一-鿿]", text.zh), text.zh
    assert Counter(rule.id for topic in topics for rule in topic.rules) == Counter(rule.id for rule in RULES)


def linked_pages(page: str) -> Counter[str]:
    return Counter(re.findall(r"\]\(([^)#]+)\)", page))


def test_the_reference_hangs_together() -> None:
    pages = reference(course(RULES))
    rules = [f"{rule.name}.md" for rule in RULES]
    for index in PAGES.values():
        (other,) = set(PAGES.values()) - {index}
        suffix = index.removeprefix("README")
        chapters = [name for name in pages if re.fullmatch(rf"chapter-[a-z]+{re.escape(suffix)}", name)]
        assert linked_pages(pages[index]) == Counter([*rules, *chapters, other])  # rules by category
        checks = Counter[str]()
        for name in chapters:
            links = linked_pages(pages[name])
            assert links.pop(index) == 1
            assert links.pop(name.replace(suffix, other.removeprefix("README"))) == 1
            assert all(f"]({name})" in pages[check] for check in links)
            checks += links
        assert checks == Counter(rules)
    for name in rules:
        page = pages[name]
        assert page.startswith(MARK)
        assert page.count("```") % 2 == 0
        assert re.search("[一-鿿]", page)
        assert set(re.findall(r"\]\(([^)#]+\.md)[)#]", page)) <= set(pages)
        for example in re.findall(r"## Bad.*?```yaml\n(.*?)```", page, re.DOTALL):
            assert example.strip()


def test_each_contents_speaks_one_language() -> None:
    pages = reference(course(RULES))
    for name in ("README.md", "chapter-recompute.md"):
        assert set(re.findall("[一-鿿]+", pages[name])) == {"中文版"}
        for line in pages[name.replace(".md", ".zh.md")].splitlines():
            if line.startswith(("| [", "## ", "# ")):
                assert re.search("[一-鿿]", line), line


def test_titles_continue_below_themselves(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(capsys, "--search", "misspelt-legacy-model-key")[1].splitlines()[1:]
    column = lines[0].index("A key of")
    assert len(lines) > 1
    assert all(len(line) <= 80 and line[:column].isspace() and line[column] != " " for line in lines[1:])


@pytest.mark.slow
def test_checks_are_found_by_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--search", "prefetch")
    assert code == 0
    assert "MST416" in out
    assert 1 < len(out.splitlines()) < len(RULES) / 10
    full = re.findall(r"^MST\d+", run(capsys, "--search", "full recompute")[1], re.MULTILINE)
    assert len(full) > 1
    both = [{*re.findall(r"^MST\d+", run(capsys, "--search", word)[1], re.MULTILINE)} for word in ("full", "recompute")]
    assert {*full} == both[0] & both[1]
