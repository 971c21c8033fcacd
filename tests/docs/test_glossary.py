"""Check that docs/glossary.md is followed: one Chinese word per thing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
