"""Test the documentation: links, commands, the glossary, the tuning checklist, and Chinese pages with the same parts as the English ones."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from html import unescape
from importlib import import_module
from pathlib import Path

import pytest

from ms_tune.cli import COMMANDS
from ms_tune.cli.main import main
from ms_tune.errors import UsageError
from ms_tune.lint.rules import all_rules
from ms_tune.text import Language

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("README*.md"),
        ROOT / "CONTRIBUTING.md",
        ROOT / "checklists/README.md",
        ROOT / "ms_tune/facts/README.md",
        ROOT / "examples/README.md",
    ]
)
CHINESE = sorted(page for page in PAGES if page.name.endswith(".zh.md") and page.parent == ROOT / "docs")
_FENCE = re.compile(r"^ *```(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^ *```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")


def prose(text: str) -> str:
    """Return a page without its examples."""
    return _FENCE.sub("", text)


@cache
def anchors(page: Path) -> set[str]:
    """Return the valid targets of links into a page: its headings as GitHub names them, and its own anchors."""
    text = page.read_text("utf-8")
    found = set(re.findall(r'<a id="([^"]+)">', text))
    for heading in re.findall(r"^#{1,6} (.+)$", prose(text), re.MULTILINE):
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Links of pages of the site must stay in it; ``mkdocs build --strict``, too slow for a test, refuses others."""
    dead = []
    for target in _LINK.findall(prose(page.read_text("utf-8"))):
        name, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (page.parent / name).resolve() if name else page
        outside = page.parent == ROOT / "docs" and not file.is_relative_to(page.parent)
        if outside or not file.exists() or (anchor and anchor not in anchors(file)):
            dead.append(target)
    assert dead == []


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the arguments of ``ms-tune`` in every example of a page, without redirections."""
    for kind, body in _FENCE.findall(page.read_text("utf-8")):
        if kind not in ("console", "sh", "bash"):
            continue
        for line in body.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|", line.removeprefix("$ ")):
                words = shlex.split(part, comments=True)
                if words[:1] == ["ms-tune"]:
                    yield words[1 : words.index(">") if ">" in words else None]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_example_commands_are_commands_with_options_that_there_are(page: Path) -> None:
    wrong = []
    for words in commands(page):
        if not words or words[0] in ("--help", "--version"):
            continue
        try:
            parser = import_module(f"ms_tune.cli.{COMMANDS[words[0]]}").build_parser(Language.EN)
            parser.parse_args(words[1:])
        except (KeyError, UsageError) as error:
            wrong.append(f"{shlex.join(words)}: {error}")
        except SystemExit as done:
            assert done.code == 0  # noqa: PT017 - argparse ends --help in this way
    assert wrong == []


def test_every_page_has_a_chinese_one() -> None:
    names = {page.name.split(".")[0] for page in CHINESE}
    assert {page.name.split(".")[0] for page in ROOT.glob("docs/*.md")} - names == set()


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.name)
def test_a_chinese_page_has_all_that_the_english_one_has(page: Path) -> None:
    """Compare headings, examples, table rows, items and links, in order."""
    english = page.with_name(page.name.replace(".zh.md", ".md"))
    assert outline(page) == outline(english)


@pytest.mark.parametrize("page", [*CHINESE, ROOT / "README.zh.md"], ids=lambda page: page.name)
def test_a_chinese_page_leads_to_chinese_ones(page: Path) -> None:
    english = []
    for target in re.findall(
        r"(?<!^\[English\])\(([^)\s:#]+\.md)[^)]*\)", prose(page.read_text("utf-8")), re.MULTILINE
    ):
        file = (page.parent / target).resolve()
        if not target.endswith(".zh.md") and file.with_name(file.name.replace(".md", ".zh.md")).exists():
            english.append(target)
    assert english == []


def row(line: str) -> str:
    """Return what a translation keeps of a row: columns, words of code and figures, in any order."""
    words = re.findall(r"`[^`]+`|\d[\d,.]*[,.]\d+", line)
    return " ".join([str(line.count("|")), *sorted(words)])


def example(kind: str, body: str) -> str:
    """Return an example without its comments and output, which are in the language of the page."""
    if kind == "text":
        return ""
    if kind not in ("console", "sh", "bash"):
        return body.strip()
    lines = [line for line in body.splitlines() if kind != "console" or line.startswith("$ ")]
    return "\n".join(re.sub(r"(?:^|\s+)#.*", "", line) for line in lines).strip()


def outline(page: Path) -> dict[str, list[str]]:
    """Return the parts of a page that do not depend on its language."""
    text = page.read_text("utf-8")
    bare = prose(text)
    return {
        "headings": re.findall(r"^#+ ", bare, re.MULTILINE),
        "examples": [f"{kind} {example(kind, body)}" for kind, body in _FENCE.findall(text)],
        "rows": [row(line) for line in bare.splitlines() if line.strip().startswith("|")],
        "items": [line.strip()[:2] for line in bare.splitlines() if re.match(r"\s*(?:-|\d+\.) ", line)],
        "links": [
            link.replace(".zh.md", ".md")
            for link in _LINK.findall(bare)
            if not re.search(r"^(?:index|README|glossary)(?:\.zh)?\.md$", link)
        ],
    }


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "checklists/README.md", "ms_tune/facts/README.md"])
def test_files_that_contributors_are_sent_to_are_there(page: str) -> None:
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|json|yaml|md)|(?:[\w-]+/)+)`", (ROOT / page).read_text("utf-8"))
    assert named
    folders = [folder.name for folder in (ROOT / "ms_tune/dialects").iterdir() if (folder / "read.py").is_file()]
    for name in named:
        if "NAME" not in name and "COMMAND" not in name:
            spelled = [re.sub(r"\bD\b", folder, name) for folder in folders]
            beside = [f"{place}{one}" for one in spelled for place in ("", "ms_tune/", "ms_tune/facts/")]
            beside += [one.replace("_", "-") for one in beside if one.startswith("checklists/")]
            assert any((ROOT / one).exists() for one in beside), name


def test_names_that_contributors_are_sent_to_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    pairs = re.findall(r"`(\w+)` (?:in|of) `((?:\w+/)+\w+\.(?:py|json))`", text)
    pairs += [(name, file) for file, name in re.findall(r"`((?:\w+/)+\w+\.py)`: `(\w+)`", text)]
    assert len(pairs) > 25
    for name, file in pairs:
        for folder in ("mindformers", "mindspeed_ms"):
            spelled = file.replace("COMMAND", "lint").replace("dialects/D/", f"dialects/{folder}/")
            assert re.search(rf"\b{name}\b", (ROOT / "ms_tune" / spelled).read_text("utf-8")), f"{name} in {file}"


GLOSSARY = ROOT / "docs" / "glossary.md"
# Rejected words may be parts of the correct ones.
_ALLOWED = {"微批": "微批次"}


def ruled_out() -> dict[str, str]:
    """Return the Chinese words that the glossary rules out, each with the one to use."""
    rows = [line.strip("|").split("|") for line in GLOSSARY.read_text("utf-8").splitlines() if line.startswith("| ")]
    words = {word.strip(): row[1].strip() for row in rows[2:] for word in row[3].split(",")}
    return {word: right for word, right in words.items() if re.search("[一-鿿]", word)}


def chinese() -> Iterator[tuple[str, str]]:
    """Yield every line with Chinese letters that users read, with its place."""
    for file in sorted((ROOT / "ms_tune" / "texts").glob("*.json")):
        for text_id, text in json.loads(file.read_text("utf-8")).items():
            lines = text["zh"] if isinstance(text["zh"], list) else [text["zh"]]
            yield from ((text_id, line) for line in lines)
    pages = [*ROOT.glob("checklists/**/*.yaml"), *ROOT.glob("docs/*.zh.md"), ROOT / "README.zh.md"]
    for file in pages:
        if file.name != "glossary.zh.md":
            for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
                if re.search("[一-鿿]", line):
                    yield f"{file.relative_to(ROOT)}:{number}", line


def test_what_the_glossary_rules_out_is_nowhere() -> None:
    words = ruled_out()
    assert len(words) >= 7
    found = [
        f"{where}: {word}, say {right}"
        for where, line in chinese()
        for word, right in words.items()
        if word in line.replace(_ALLOWED.get(word, "\0"), "")
    ]
    assert found == []


def test_both_pages_name_the_same_words() -> None:
    pages = [GLOSSARY, GLOSSARY.with_name("glossary.zh.md")]
    columns = [
        [tuple(line.split("|")[index] for index in (1, 2, 4)) for line in page.read_text("utf-8").splitlines()[8:]]
        for page in pages
    ]
    assert columns[0] == columns[1]


PAGE = Path(__file__).parents[2] / "docs" / "tuning-checklist.md"
ENTRIES = 24  # of the guide: speed 8 and 7, memory 3 and 2, its way through a shortage 4 (figures come besides)
_OTHER = {"mint", "contiguous()", "sum", "zero_shard_size", "bprop", "--profile debug-memory"}


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines if not line.startswith(("| to do", "| ---"))]


def test_every_entry_has_something_that_holds_it_or_a_reason() -> None:
    found = rows()
    assert len(found) == ENTRIES + 2
    for row in found:
        assert re.search(r"`[^`]+`|nothing: \w+", row[1]), row


def test_what_a_row_names_is_there() -> None:
    checks = {rule.name for rule in all_rules()}
    names = {name for row in rows() for cell in row for name in re.findall(r"`([^`]+)`", cell)} - _OTHER
    commands = {name for name in names if name.startswith("ms-tune ")}
    assert {name.split()[1] for name in commands} <= COMMANDS.keys()
    assert names - commands - checks == set()
    assert len(names & checks) > 30


@pytest.mark.parametrize(("language", "suffix"), [("en", ""), ("zh", ".zh")])
def test_the_picture_of_check_is_its_output(
    language: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = (ROOT / "docs" / "assets" / f"check{suffix}.svg").read_text(encoding="utf-8")
    command, *shown = (unescape(re.sub("<[^>]*>", "", line)) for line in re.findall("<text.*?</text>", picture))
    monkeypatch.setenv("COLUMNS", "84")
    monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path))  # without measurements of earlier runs
    monkeypatch.chdir(ROOT)
    main([*command.removeprefix("$ ms-tune ").split(), "--lang", language])
    assert "".join("".join(shown).split()) == "".join(capsys.readouterr().out.split())
