"""Count the words in texts, pages, checklists, docstrings and comments that the style avoids.

The figures of the tables below may only shrink: run ``python -m tests.test_words`` to print them as they are now.
"""

from __future__ import annotations

import ast
import io
import json
import math
import re
import sys
import tokenize
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from ms_tune.diagnostics import Severity

ROOT = Path(__file__).parents[1]
PARTS = ("docs", "texts", "checklists", "code")  # code: docstrings and comments
# Occurrences per 10,000 words, at most, in each part.
CEILINGS: dict[str, tuple[float, float, float, float]] = {
    # docs, texts, checklists, code
    "what": (18.2, 17.2, 3.2, 2.6),
    "tell": (0.0, 0.0, 0.5, 0.5),
    "hold": (0.0, 0.0, 3.3, 0.0),
    "stand": (1.0, 0.0, 0.1, 0.7),
    "beside": (0.0, 0.0, 0.9, 0.3),
    "behind": (0.0, 0.4, 1.0, 0.0),
    "anew": (0.0, 0.0, 0.0, 0.0),
    "mend": (0.0, 0.0, 0.0, 0.0),
    "set aside": (0.0, 0.0, 0.0, 0.0),
    "held to": (0.0, 0.0, 0.0, 0.0),
    "may take": (0.0, 0.0, 0.0, 0.0),
    "is no": (1.4, 2.9, 1.7, 1.6),
}
# Other faults of style, at most.
LIMITS = {
    "texts with sentences of more than 40 words": 0,
    "texts with sentences of more than 25 words": 0,
    "sentences of pages with more than 40 words": 0,
    "sentences of pages with more than 30 words": 5,
    "paragraphs of pages with more than 120 words": 0,
    "texts with (s)": 0,
    "words for which the glossary has another": 1,
    "texts that call a level note": 0,
}
MOST_OF_A_PAGE = 2500  # words, which are about eight screens

WORDS = {
    "what": r"what(?!-if)",
    "tell": r"(?:fore)?(?:tells?|told|telling)",
    "hold": r"holds?|held",
    "stand": r"stands?|stood",
    "beside": r"beside",
    "behind": r"behind",
    "anew": r"anew",
    "mend": r"mend(?:s|ed|ing)?",
    "set aside": r"sets? aside",
    "held to": r"held to",
    "may take": r"may take",
    "is no": r"(?:is|are) (?-i:no|none)",  # but not Python's None
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_NOT_PROSE = re.compile(r"`[^`]*`|(?<=\])\([^)]*\)|https?:\S+|<[^>]*>|\{[^}]*\}")


def english_texts() -> dict[str, str]:
    """Return the English of every text, by its ID."""
    found = {}
    for file in sorted((ROOT / "ms_tune" / "texts").glob("*.json")):
        for text_id, text in json.loads(file.read_text("utf-8")).items():
            found[text_id] = text["en"] if isinstance(text["en"], str) else "\n".join(text["en"])
    return found


def pages() -> dict[str, str]:
    """Return the English pages without their examples."""
    files = [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"]
    return {file.name: _FENCE.sub("", file.read_text("utf-8")) for file in files if not file.name.endswith(".zh.md")}


def _checklist_lines() -> list[str]:
    files = sorted((ROOT / "checklists").rglob("*.yaml"))
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    return [line for line in lines if not _CHINESE.search(line)]


def _code_words() -> list[str]:
    found = []
    for file in sorted((ROOT / "ms_tune").rglob("*.py")):
        source = file.read_text("utf-8")
        documented = (node for node in ast.walk(ast.parse(source)) if isinstance(node, _DOCUMENTED))
        found += [ast.get_docstring(node) or "" for node in documented]
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        found += [token.string for token in tokens if token.type == tokenize.COMMENT]
    return found


@cache
def part(name: str) -> str:
    """Return all English prose of one part of the project."""
    if name == "docs":
        return _NOT_PROSE.sub(" ", "\n".join(pages().values()))
    if name == "texts":
        return "\n".join(english_texts().values())
    return "\n".join(_checklist_lines() if name == "checklists" else _code_words())


@cache
def count_words(name: str) -> int:
    """Return the number of words of one part."""
    return len(re.findall(r"[A-Za-z]+", part(name)))


def frequency(word: str, name: str) -> float:
    """Return how often a word occurs in 10,000 words of a part."""
    return 1e4 * len(re.findall(rf"\b(?:{WORDS[word]})\b", part(name), re.IGNORECASE)) / count_words(name)


def sentences(prose: str) -> list[list[str]]:
    """Split prose at full stops and blank lines, into the words of each sentence; table rows are left out."""
    lines = [line for line in prose.splitlines() if not line.lstrip().startswith(("|", "#"))]
    parts = re.split(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*(?:-|\d+\.) ", "\n".join(lines))
    return [re.findall(r"[A-Za-z][\w'-]*", sentence) for sentence in parts]


def long_texts(most: int) -> list[str]:
    """Return the IDs of texts that have a sentence of more words; examples are not sentences."""
    return [
        text_id
        for text_id, text in english_texts().items()
        if not text_id.endswith(".examples") and any(len(words) > most for words in sentences(text))
    ]


def long_sentences(most: int) -> list[str]:
    """Return the sentences of pages that have more words, each with its page."""
    return [
        f"{name}: {' '.join(words)}"
        for name, page in pages().items()
        for words in sentences(_NOT_PROSE.sub(" ", page))
        if len(words) > most
    ]


def long_paragraphs(most: int) -> list[str]:
    """Return the beginnings of paragraphs of pages that have more words."""
    return [
        f"{name}: {paragraph[:60]}"
        for name, page in pages().items()
        for paragraph in re.split(r"\n\s*\n", page)
        if not paragraph.lstrip().startswith(("|", "-", "1."))
        and len(re.findall(r"[A-Za-z][\w'-]*", _NOT_PROSE.sub(" ", paragraph))) > most
    ]


def bracketed_plurals() -> list[str]:
    """Return the IDs of texts that have a plural in brackets."""
    return [text_id for text_id, text in english_texts().items() if re.search(r"\w\(e?s\)", text)]


def other_names() -> list[str]:
    """Return each use of an English word for which the glossary has another one, with its text or page."""
    rows = [line.strip("|").split("|") for line in (ROOT / "docs/glossary.md").read_text("utf-8").splitlines()]
    words = [word for row in rows if len(row) > 3 for word in re.findall(r"`([^`]+)`", row[3])]
    assert len(words) > 5
    named = re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)
    prose = {**english_texts(), **{name: _NOT_PROSE.sub(" ", page) for name, page in pages().items()}}
    return [f"{name}: {found}" for name, text in prose.items() for found in named.findall(text)]


def other_levels() -> list[str]:
    """Return the IDs of texts that call the lowest level of findings something else than info."""
    other = re.compile(r"^(?:note|notice)s?(?::|$)|\} (?:note|notice)\b", re.IGNORECASE)
    return [text_id for text_id, text in english_texts().items() if other.search(text)]


COUNTS: dict[str, Callable[[], list[str]]] = {
    "texts with sentences of more than 40 words": lambda: long_texts(40),
    "texts with sentences of more than 25 words": lambda: long_texts(25),
    "sentences of pages with more than 40 words": lambda: long_sentences(40),
    "sentences of pages with more than 30 words": lambda: long_sentences(30),
    "paragraphs of pages with more than 120 words": lambda: long_paragraphs(120),
    "texts with (s)": bracketed_plurals,
    "words for which the glossary has another": other_names,
    "texts that call a level note": other_levels,
}


def words_of_pages() -> dict[str, int]:
    """Return the number of words of each page, without its examples."""
    return {name: len(page.split()) for name, page in pages().items()}


@pytest.mark.parametrize("name", [*PARTS[:-1], pytest.param(PARTS[-1], marks=pytest.mark.slow)])
def test_words_that_the_style_avoids_become_fewer(name: str) -> None:
    assert CEILINGS.keys() == WORDS.keys()
    column = PARTS.index(name)
    found = {word: frequency(word, name) for word in WORDS}
    over = {
        word: f"{found[word]:.1f}, at most {most[column]}"
        for word, most in CEILINGS.items()
        if found[word] > most[column]
    }
    assert over == {}


@pytest.mark.parametrize("name", COUNTS)
def test_other_faults_of_style_become_fewer(name: str) -> None:
    found = COUNTS[name]()
    assert len(found) <= LIMITS[name], "\n".join(found)


def test_pages_are_short() -> None:
    assert {name: count for name, count in words_of_pages().items() if count > MOST_OF_A_PAGE} == {}


def test_the_levels_are_error_warning_and_info() -> None:
    assert [severity.value for severity in Severity] == ["error", "warning", "info"]


def main() -> None:
    """Print the tables at the beginning as they would be now."""
    lines = []
    for word in WORDS:
        figures = [math.ceil(10 * frequency(word, name)) / 10 for name in PARTS]
        lines.append(f'    "{word}": ({", ".join(str(figure) for figure in figures)}),')
    lines += [f'    "{name}": {len(count())},' for name, count in COUNTS.items()]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
