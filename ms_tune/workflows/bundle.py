"""Pack the folder of a run into a zip to send: without absolute paths, and without names of users and machines."""

from __future__ import annotations

import os
import re
import socket
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ms_tune.errors import UsageError
from ms_tune.source.files import read_bytes
from ms_tune.text import msg

_MOST_BYTES = 256 << 20  # of one file
_MOST_FILES = 10_000
_TEXTS = (".json", ".csv", ".txt", ".log", ".yaml", ".yml", ".ir", ".sh", ".py", ".md", ".diff")
_PATH = re.compile(r"(?<![\w./…])/(?:[\w.+@=-]+/)+(?P<name>[\w.+@=-]*)")
_INSTALLED = re.compile(r".*/(?:(?:site|dist)-packages/|(?=ms_tune/))")  # of a package, the path in it is kept
_ADDRESS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_SHORTEST = 3  # letters of a name that is replaced; a shorter one, and `root`, is in too many words
_COMMON = {"root", "user", "localhost", "python", "mindspore", "rank", "node", "model", "home", "work"}


class Bundle(NamedTuple):
    """The packed files."""

    files: int
    left_out: tuple[str, ...]  # names of files left out: not text, or too large


def pack_run(folder: Path, target: Path) -> Bundle:
    """Write the texts in a folder to a zip. Raises UsageError if it is not a folder, or is empty."""
    clean, left_out, count = _cleaner(folder), list[str](), 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for number, file in enumerate(_files(folder)):
            name = file.relative_to(folder).as_posix()
            if number >= _MOST_FILES or file.suffix not in _TEXTS or file.stat().st_size > _MOST_BYTES:
                left_out.append(clean(name))
                continue
            lines = read_bytes(file, _MOST_BYTES).decode("utf-8", "replace").splitlines(keepends=True)
            with packed.open(clean(name), "w") as part:
                for line in lines:
                    part.write(clean(line).encode())
            count += 1
    if not count:
        raise UsageError(msg("report.bundle.empty", folder=folder))
    return Bundle(count, tuple(left_out))


def _files(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(here, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _cleaner(folder: Path) -> Callable[[str], str]:
    """Return the function that replaces paths and names in a text."""
    names = {socket.gethostname(), socket.gethostname().partition(".")[0], Path.home().name, os.environ.get("USER", "")}
    known = [re.escape(one) for one in names if len(one) >= _SHORTEST and one.lower() not in _COMMON]
    words = (
        re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(sorted(known, key=len, reverse=True))})(?![A-Za-z0-9])")
        if known
        else None
    )
    run = str(folder.resolve())

    def shorten(found: re.Match[str]) -> str:
        inside = _INSTALLED.sub("", found[0])
        return inside if inside != found[0] else f"…/{found['name']}"

    def clean(text: str) -> str:
        text = _ADDRESS.sub("0.0.0.0", _PATH.sub(shorten, text.replace(run, "RUN")))  # noqa: S104 - it replaces addresses
        return words.sub("NAME", text) if words is not None else text

    return clean
