"""The release of MindSpeed-LLM in whose sources a script lies, by the arguments that they define."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ms_tune.facts.megatron import releases_with

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_PACKAGE, _OTHER, _SURELY = "mindspeed_llm", "mindspeed_ms", "training/arguments.py"
_LARGEST = 1 << 20
_MOST_FILES = 5000
_ARGUMENT = re.compile(r"add_argument\(\s*['\"](--[\w-]+)['\"](?:\s*,\s*['\"](--[\w-]+)['\"])?")


def releases_around(script: Path) -> tuple[str, ...]:
    """The releases of MindSpeed-LLM that the sources around a script are of, oldest first; none where it lies elsewhere.

    More than one where the arguments that they define do not tell them apart.
    """
    package = _around(script)
    return _releases(package) if package is not None and package.name == _PACKAGE else ()


def parser_of_its_own(script: Path) -> Path | None:
    """The parser of MindSpeed-Core-MS before it took MindSpeed-LLM's (``br_master``), if a script lies in its sources."""
    package = _around(script)
    return package / _SURELY if package is not None and package.name == _OTHER else None


def _around(script: Path) -> Path | None:
    """The package of the innermost checkout: that of one may have been cloned into that of the other."""
    packages = (parent / name for parent in script.absolute().parents for name in (_PACKAGE, _OTHER))
    return next((package for package in packages if (package / _SURELY).is_file()), None)


@lru_cache(maxsize=16)
def _releases(package: Path) -> tuple[str, ...]:
    return releases_with("MindSpeed-LLM", frozenset(arguments_defined(package, ["."])))


def arguments_defined(folder: Path, places: Sequence[str]) -> Iterator[str]:
    """The arguments that the Python sources in some places below a folder define."""
    left = _MOST_FILES
    for place in places:
        path = folder / place
        for file in [path] if path.is_file() else path.rglob("*.py"):
            left -= 1
            if not left:
                return
            for names in _ARGUMENT.findall(source_text(file)):
                yield from filter(None, names)


def source_text(file: Path) -> str:
    """The text of a file; none of one that is too large or cannot be read."""
    try:
        return file.read_text("utf-8", "replace") if file.stat().st_size <= _LARGEST else ""
    except OSError:
        return ""
