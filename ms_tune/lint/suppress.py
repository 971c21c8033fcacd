"""Findings that the author of a file has looked at and wants no more: comments in the file itself.

``# ms-tune: ignore[name, MST101] reason`` holds for the finding on its line, on the line below (if the comment stands
alone), or anywhere around it; ``# ms-tune: file-ignore[name]`` holds for the whole file. A comment that ignores nothing
is a finding itself, or it would outlive its reason.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, Fix, Location, TextEdit
from ms_tune.lint.settings import MALFORMED_IGNORE, UNUSED_IGNORE, OwnRule
from ms_tune.text import Message, lookup, msg

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ms_tune.diagnostics import KeyPath

# The whole comment from its last `#` on; `#` counts at the start of a line or behind a blank, as in YAML.
_COMMENT = re.compile(r"(?<![^\s])#[ \t]*ms-tune:(?P<words>[^\r\n#]*)")
_DIRECTIVE = re.compile(r"\s*(?P<verb>ignore|file-ignore)\[(?P<names>[^\]]*)\](?P<reason>.*)")
_NAME = re.compile(r"[^\s,]+")
_LINE_BREAK = re.compile("\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Directive:
    """One comment that ignores findings."""

    span: Location  # the comment
    names: tuple[tuple[str, int], ...]  # the checks, by id or name, each with its place in the text
    whole_file: bool  # whether it holds for every line
    first: int  # the first line that it is about: its own, or the next one that holds more than a comment


@dataclass(frozen=True, slots=True)
class Suppressed:
    """The findings that remain, and how many were ignored."""

    findings: tuple[Diagnostic, ...]
    ignored: int


class _LineIndex:
    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(match.end() for match in _LINE_BREAK.finditer(text))]

    def span(self, start: int, end: int) -> Location:
        first, last = bisect_right(self.starts, start), bisect_right(self.starts, end)
        return Location(start, end, first, start - self.starts[first - 1] + 1, last, end - self.starts[last - 1] + 1)

    def words(self, number: int) -> str:
        """A line without the blanks around it; nothing behind the last line."""
        if number > len(self.starts):
            return "-"
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1] : end].strip()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the comments of a file are read against."""

    names: Mapping[str, frozenset[str]]  # the ids of the checks that a name means: a check's id or name, or a family's
    made: Collection[str]  # the ids of the checks that were made; a comment about another one may be in use elsewhere
    region: Callable[[KeyPath], tuple[int, int] | None]  # the first and last line of a key path, its key included
    quoted: Sequence[tuple[int, int]]  # stretches of the text that are strings, where `#` starts no comment


def suppress(text: str, findings: Sequence[Diagnostic], surroundings: Surroundings) -> Suppressed:
    """Take away what the comments of a file ignore, and complain about comments that ignore nothing."""
    lines = _LineIndex(text)
    directives: list[Directive] = []
    complaints: list[Diagnostic] = []
    for match in _COMMENT.finditer(text):
        if any(start <= match.start() < end for start, end in surroundings.quoted):
            continue
        directive = _directive(match, lines)
        if directive is None:
            complaints.append(_complaint(MALFORMED_IGNORE, "lint.ignore.malformed", lines.span(*match.span()), {}))
        else:
            directives.append(directive)
    used: set[tuple[int, int]] = set()
    kept = [finding for finding in findings if not _is_ignored(finding, directives, surroundings, used)]
    for directive in directives:
        complaints += _unused(directive, lines, surroundings, used)
    together = sorted((*kept, *complaints), key=lambda finding: (finding.location.start, finding.id))
    return Suppressed(tuple(together), len(findings) - len(kept))


def _directive(match: re.Match[str], lines: _LineIndex) -> Directive | None:
    found = _DIRECTIVE.fullmatch(match["words"])
    if found is None:
        return None
    start = match.start("words") + found.start("names")
    names = [(name[0], start + name.start()) for name in _NAME.finditer(found["names"])]
    if not names:
        return None
    span = lines.span(match.start(), match.end())
    first = span.line
    while lines.words(first).startswith("#") or not lines.words(first):
        first += 1
    return Directive(span, tuple(names), found["verb"] == "file-ignore", first)


def _is_ignored(
    finding: Diagnostic, directives: Iterable[Directive], surroundings: Surroundings, used: set[tuple[int, int]]
) -> bool:
    """Whether a comment ignores the finding. Every comment that does is in use."""
    ignored = False
    for directive in directives:
        for name, place in directive.names:
            if finding.id in surroundings.names.get(name, ()) and _is_about(directive, finding, surroundings):
                used.add((directive.span.start, place))
                ignored = True
    return ignored


def _is_about(directive: Directive, finding: Diagnostic, surroundings: Surroundings) -> bool:
    if directive.whole_file:
        return True
    places = [(finding.location.line, finding.location.end_line)]
    if finding.path:
        node = surroundings.region(finding.path)
        places += [node] if node else []
    here = (directive.span.line, directive.first)
    return any(start == here[1] or start <= here[0] <= end for start, end in places)


def _unused(
    directive: Directive, lines: _LineIndex, surroundings: Surroundings, used: set[tuple[int, int]]
) -> Iterator[Diagnostic]:
    names = surroundings.names
    start = directive.span.start
    idle = [
        (name, place)
        for name, place in directive.names
        if (start, place) not in used and (name not in names or names[name].intersection(surroundings.made))
    ]
    for name, place in idle:
        span = lines.span(place, place + len(name))
        text_id = "lint.ignore.unused" if name in names else "lint.ignore.unknown"
        fix = None
        if len(directive.names) == 1:
            fix = Fix(safe=True, title=msg("lint.fix.remove-ignore"), changes=(), edits=(_removal(directive, lines),))
        yield _complaint(UNUSED_IGNORE, text_id, span, {"name": name}, fix)


def _removal(directive: Directive, lines: _LineIndex) -> TextEdit:
    """The comment with the blanks before it; with its line, if nothing else stands there."""
    text, line = lines.text, directive.span.line
    line_start = lines.starts[line - 1]
    before = text[line_start : directive.span.start]
    if before.strip():
        return TextEdit(line_start + len(before.rstrip()), directive.span.end, "")
    end = lines.starts[line] if line < len(lines.starts) else len(text)
    return TextEdit(line_start, end, "")


def _complaint(
    rule: OwnRule, text_id: str, span: Location, params: Mapping[str, str], fix: Fix | None = None
) -> Diagnostic:
    return Diagnostic(
        id=rule.id,
        name=rule.name,
        severity=rule.severity,
        category=rule.category,
        path=(),
        location=span,
        message=Message("", params, lookup(text_id)),
        help=Message("", params, rule.text("help")),
        fix=fix,
    )
