r"""Scripts whose lines end as in Windows: read as their author meant them, and written back with the ends that they had.

Bash takes a carriage return for a part of the word in front of it, and behind a backslash the line does not go on. So such a
script does something else than is meant; what is meant is what can be said anything about.
"""

from __future__ import annotations

from difflib import SequenceMatcher

RETURN = "\r\n"


def as_meant(text: str) -> str:
    """A script with the line ends of Unix, every character at its place: a blank stands for the carriage return."""
    return text.replace("\\\r\n", " \\\n").replace(RETURN, " \n") if RETURN in text else text


def as_written(written: str, text: str) -> str:
    """An edited script with the line ends that it had.

    Args:
        written: What it was before :func:`as_meant`.
        text: What was made of it since.
    """
    if RETURN not in written:
        return text
    meant = as_meant(written)
    before, old, new = (_lines(one) for one in (written, meant, text))
    found: list[str] = []
    for kind, start, stop, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        found += before[start:stop] if kind == "equal" else map(_as_in_windows, new[first:last])
    return "".join(found)


def _lines(text: str) -> list[str]:
    """The lines with their ends; what else Python takes for one is a part of its line."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), last]


def _as_in_windows(line: str) -> str:
    bare = line.removesuffix("\n")
    if bare == line:
        return line
    if bare.endswith("  \\"):
        return f"{bare[:-2]}\\{RETURN}"
    return f"{bare.removesuffix(' ')}{RETURN}"
