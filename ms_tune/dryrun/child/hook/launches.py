"""A launcher that the stand-ins in PATH did not meet, such as ``/usr/bin/python -m torch.distributed.launch``, is met here.

Python imports the hook before the launcher's first line, and the stand-in takes its place (``exec``).
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PLAN = "MS_TUNE_LAUNCH"  # the variable with what a stand-in needs to know, as JSON
INTERPRETER = "MS_TUNE_INTERPRETER"  # the Python that ran the launcher, which will run its ranks
_TAKES_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def meet() -> None:
    """Become the stand-in if this process is a launcher."""
    text = os.environ.get(PLAN)
    if not text:
        return
    plan = json.loads(text)
    words = sys.orig_argv[1:]
    found = launcher_of(words, plan["modules"], plan["programs"])
    if found is None:
        return
    name, start = found
    os.environ[INTERPRETER] = sys.executable
    os.execv(plan["python"], [plan["python"], "-I", "-S", plan["stand_in"], name, *words[start:]])  # noqa: S606 - ours


def launcher_of(words: Sequence[str], modules: Mapping[str, str], programs: Sequence[str]) -> tuple[str, int] | None:
    """The launcher that a Python process is, and how many words stand before the launcher's own.

    Args:
        words: Arguments of the interpreter, without its name.
        modules: Launchers by the module that ``-m`` names.
        programs: Launchers by the file's name.
    """
    at = 0
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word == "-":
            name = os.path.basename(word)  # noqa: PTH119 - every Python process of a program pays for pathlib
            return (name, at + 1) if name in programs else None
        if word.startswith("--"):
            at += 2 if word in _TAKES_VALUE else 1
            continue
        letter = next((letter for letter in word[1:] if letter in "cmWX"), "")
        value = word[word.index(letter) + 1 :] if letter else ""
        at += 1
        if letter and not value:
            value, at = (words[at] if at < len(words) else ""), at + 1
        if letter in ("c", "m"):
            return (modules[value], at) if letter == "m" and value in modules else None
    return None
