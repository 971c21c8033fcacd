"""Check the evidence of checks: the file is in that release, and it contains a quoted error.

MindFormers is read from its wheels (see :mod:`tests.oracle.wheels`), MindSpore and PyYAML from their installed packages.
MindSpeed-Core-MS is on no package index; the wheel of MindFormers 1.6 contains an earlier form of nearly all of its files.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import warnings
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from ms_tune.lint.checklist import Check, built_in, built_in_code
from ms_tune.lint.rules import Evidence, evidence_of
from tests.oracle import make_megatron, make_mindspeed_mm, wheels
from tests.source.corpus import SITE_PACKAGES

CHECKS = (*built_in(), *chain.from_iterable(built_in_code().values()))
EVIDENCE = sorted({item for check in CHECKS for item in evidence_of(check)}, key=str)
_QUOTED = re.compile(r"'((?:\w*Error|Exception): .*?)'(?=[\s.,;:)]|$)")
# Exceptions of Python itself, which the frameworks do not catch.
_PYTHONS_OWN = (
    "is not a valid ContextParallelAlgo",
    "unsupported operand",
    "list index out of range",
    "malformed node or string",
    "missing 1 required positional argument",
)


_EARLIER_FORM = {
    "mindspeed_ms/core/": "mindformers/experimental/parallel_core/pynative/",
    "mindspeed_ms/legacy/model/": "mindformers/experimental/parallel_core/pynative/transformer/",
    "mindspeed_ms/training/": "mindformers/experimental/parallel_core/pynative/training/",
}
# Hybrid context parallelism, and Ulysses as an algorithm of its own, came after that earlier form.
_LATER = {"MST639", "MST640", "MST641", "MST642", "MST693"}


@cache
def parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in the frameworks' docstrings
        return ast.parse(text)


@cache
def source(evidence: Evidence) -> str | None:
    """Return the file's text; None if that release is not available, such as CANN's documentation, or the sources of PyTorch and HyperParallel."""
    return None if evidence.framework in ("CANN", "PyTorch", "HyperParallel") else at_hand(evidence)


def at_hand(evidence: Evidence) -> str | None:
    if evidence.framework == "MindFormers":
        return in_wheel(evidence.version, evidence.file)
    if evidence.framework == "MindSpeed-Core-MS":
        (start,) = (start for start in _EARLIER_FORM if evidence.file.startswith(start))
        return in_wheel("1.6.0", evidence.file.replace(start, _EARLIER_FORM[start]), needed=False)
    if evidence.framework in ("Megatron-LM", "MindSpeed", "MindSpeed-LLM"):
        return make_megatron.text_of(evidence.framework, evidence.version, evidence.file)
    if evidence.framework == "MindSpeed-MM":
        sources = os.environ.get(make_mindspeed_mm.SOURCES)
        return (Path(sources) / evidence.version / evidence.file).read_text(encoding="utf-8") if sources else None
    folder = SITE_PACKAGES if evidence.framework == "MindSpore" else Path(sys.modules["yaml"].__file__ or "").parents[1]
    if evidence.framework == "MindSpore" and not list(SITE_PACKAGES.glob(f"mindspore-{evidence.version}.dist-info")):
        return None
    return (folder / evidence.file).read_text(encoding="utf-8")


def in_wheel(version: str, file: str, *, needed: bool = True) -> str | None:
    """Return a file of MindFormers; None if the wheel is not available, or lacks an optional file."""
    found = wheels.wheel(version.rpartition(".")[0])
    if isinstance(found, str):
        return None
    return read(found, file, needed=needed)


@cache
def read(found: Path, file: str, *, needed: bool) -> str | None:
    archive = wheels.opened(found)
    return archive.read(file).decode() if needed or file in archive.namelist() else None


@cache
def literals(text: str) -> list[set[str]]:
    """Return the words of every string of a Python file, without the inserted values of f-strings."""
    found = []
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(words(node.value))
        elif isinstance(node, ast.JoinedStr):
            found.append(words(" ".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))))
    return found


def words(text: str) -> set[str]:
    return set(re.findall(r"\w{2,}", text.lower()))


def has_quotation(quoted: set[str], strings: list[set[str]]) -> bool:
    """Return whether one string of the files has most of the quotation's words; the others are inserted values."""
    return any(len(quoted & string) >= 0.7 * len(quoted) for string in strings)


RELEASES = sorted({(item.framework, item.version) for item in EVIDENCE})


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES, ids=" ".join)
def test_files_classes_and_functions_are_in_that_release(release: tuple[str, str]) -> None:
    found = [item for item in EVIDENCE if (item.framework, item.version) == release]
    assert [
        item.file
        for item in found
        if not re.fullmatch(r"[\w.]+(/[\w.]+)+\.(py|h|cc|html|md|yaml)|issues/\d+", item.file)
    ] == []
    texts = [(item, source(item)) for item in found]
    if all(text is None for _, text in texts):
        pytest.skip("not at hand")
    assert [str(item) for item, text in texts if text is not None and not text] == []
    assert [str(item) for item, text in texts if text is not None and item.symbol and not has(text, item)] == []


def has(text: str, evidence: Evidence) -> bool:
    """Return whether a file has the named class or function."""
    if evidence.file.endswith(".py"):
        return evidence.symbol in symbols(parsed(text))
    return bool(re.search(rf"\b{evidence.symbol.rpartition('.')[2]}\b", text))


@cache
def symbols(node: ast.AST, within: str = "") -> set[str]:
    """Map the full names of a Python file's classes and functions to their nodes."""
    found = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found |= {f"{within}{child.name}"} | symbols(child, f"{within}{child.name}.")
        elif isinstance(child, (ast.stmt, ast.ExceptHandler)):  # expressions contain none
            found |= symbols(child, within)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "check", [check for check in CHECKS if _QUOTED.search(check.why.en)], ids=lambda check: check.id
)
def test_an_error_that_a_check_quotes_is_raised_there(check: Check) -> None:
    texts = [text for item in evidence_of(check) if item.file.endswith(".py") and (text := source(item)) is not None]
    if len(texts) < len(evidence_of(check)) or check.id in _LATER:
        pytest.skip("not every release is at hand")
    strings = list(chain.from_iterable(map(literals, texts)))
    for message in _QUOTED.findall(check.why.en):
        says = message.partition(": ")[2]
        if not any(own in says for own in _PYTHONS_OWN):
            assert all(has_quotation(words(part), strings) for part in says.split("...") if words(part)), message
