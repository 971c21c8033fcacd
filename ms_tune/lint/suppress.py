"""Ignore findings with comments in the file itself.

``# ms-tune: ignore[name, MST101] reason`` applies to a finding on its line, on the line below (if the comment has its own
line), or whose range includes it; ``# ms-tune: file-ignore[name]`` applies to the whole file. A comment that ignores nothing
is a finding itself, or it would outlive its reason.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

import yaml

from ms_tune.diagnostics import Diagnostic, Fix, Location, TextEdit
from ms_tune.dialects.check_context import CodeSource
from ms_tune.lint.settings import MALFORMED_IGNORE, UNUSED_IGNORE, BuiltinRule
from ms_tune.records import Record
from ms_tune.source.yaml import SourceFile
from ms_tune.source.yaml_nodes import Document, Loader, offsets
from ms_tune.text import Message, lookup, msg

# The whole comment from its last `#` on; `#` counts at the start of a line or after a space, as in YAML.
_COMMENT = r"(?<![^\s])#[ \t]*ms-tune:(?P<words>[^\r\n#]*)"
_DIRECTIVE = r"\s*(?P<verb>ignore|file-ignore)\[(?P<names>[^\]]*)\](?P<reason>.*)"
_NAME = r"[^\s,]+"


class Directive(Record):
    """One comment that ignores findings."""

    span: Location  # the comment
    names: tuple[tuple[str, int], ...]  # the checks, by id or name, each with its offset in the text
    whole_file: bool  # whether it applies to every line
    first: int  # the first line that it applies to: its own, or the next one that is not only a comment


def suppress(
    source: SourceFile, findings: Sequence[Diagnostic], names: Mapping[str, frozenset[str]], made: Collection[str]
) -> tuple[tuple[Diagnostic, ...], int]:
    """Remove the findings that comments ignore, report comments that ignore nothing, and return how many were removed."""
    lines = Document(source.text, source.path)
    quoted = sorted(source.quoted() if isinstance(source, CodeSource) else _quoted(source.text))
    starts, ends = [start for start, _ in quoted], list(accumulate((end for _, end in quoted), max))
    followed = _find_next_lines(lines)
    directives: list[Directive] = []
    complaints: list[Diagnostic] = []
    for match in re.finditer(_COMMENT, source.text):
        before = bisect_right(starts, match.start())
        if before and match.start() < ends[before - 1]:
            continue
        directive = _directive(match, lines, followed)
        if directive is None:
            complaints.append(_complaint(MALFORMED_IGNORE, "lint.ignore.malformed", lines.span(*match.span()), {}))
        else:
            directives.append(directive)
    used: set[tuple[int, int]] = set()
    kept = [finding for finding in findings if not _is_ignored(finding, directives, source, names, used)]
    for directive in directives:
        complaints += _unused(directive, lines, names, made, used)
    together = sorted((*kept, *complaints), key=lambda finding: (finding.location.start, finding.id))
    return tuple(together), len(findings) - len(kept)


def _quoted(text: str) -> list[tuple[int, int]]:
    """Return the ranges of quoted strings and blocks: a `#` in them does not start a comment."""
    return [
        offsets(event)
        for event in yaml.parse(text, Loader=Loader)
        if isinstance(event, yaml.ScalarEvent) and event.style
    ]


def _find_next_lines(lines: Document) -> list[int]:
    """Return, for each line, the first line from it on that is not only a comment; after the last one, the line after it."""
    followed = [len(lines.starts) + 1]
    for number in range(len(lines.starts), 0, -1):
        start, end = lines.starts[number - 1], lines.starts[number] if number < len(lines.starts) else None
        words = lines.text[start:end].strip()
        followed.append(number if words and not words.startswith("#") else followed[-1])
    return followed[::-1]


def _directive(match: re.Match[str], lines: Document, followed: Sequence[int]) -> Directive | None:
    found = re.fullmatch(_DIRECTIVE, match["words"])
    if found is None:
        return None
    start = match.start("words") + found.start("names")
    names = [(name[0], start + name.start()) for name in re.finditer(_NAME, found["names"])]
    if not names:
        return None
    span = lines.span(match.start(), match.end())
    return Directive(span, tuple(names), found["verb"] == "file-ignore", followed[span.line - 1])


def _is_ignored(
    finding: Diagnostic,
    directives: Iterable[Directive],
    source: SourceFile,
    names: Mapping[str, frozenset[str]],
    used: set[tuple[int, int]],
) -> bool:
    """Return whether a comment ignores the finding, and record which ones do."""
    ignored = False
    for directive in directives:
        for name, place in directive.names:
            if finding.id in names.get(name, ()) and _is_about(directive, finding, source):
                used.add((directive.span.start, place))
                ignored = True
    return ignored


def _is_about(directive: Directive, finding: Diagnostic, source: SourceFile) -> bool:
    if directive.whole_file:
        return True
    places = [(finding.location.line, finding.location.end_line)]
    position = source.position(finding.path) if finding.path else None
    if position is not None:
        first = (position.key or position.value).line
        places.append((first, max(position.value.end_line, first)))
    here = (directive.span.line, directive.first)
    return any(start == here[1] or start <= here[0] <= end for start, end in places)


def _unused(
    directive: Directive,
    lines: Document,
    names: Mapping[str, frozenset[str]],
    made: Collection[str],
    used: set[tuple[int, int]],
) -> Iterator[Diagnostic]:
    start = directive.span.start
    idle = [
        (name, place)
        for name, place in directive.names
        if (start, place) not in used and (name not in names or names[name].intersection(made))
    ]
    for name, place in idle:
        span = lines.span(place, place + len(name))
        text_id = "lint.ignore.unused" if name in names else "lint.ignore.unknown"
        fix = None
        if len(directive.names) == 1:
            fix = Fix(safe=True, title=msg("lint.fix.remove-ignore"), changes=(), edits=(_removal(directive, lines),))
        yield _complaint(UNUSED_IGNORE, text_id, span, {"name": name}, fix)


def _removal(directive: Directive, lines: Document) -> TextEdit:
    text, line = lines.text, directive.span.line
    line_start = lines.starts[line - 1]
    before = text[line_start : directive.span.start]
    if before.strip():
        return TextEdit(line_start + len(before.rstrip()), directive.span.end, "")
    end = lines.starts[line] if line < len(lines.starts) else len(text)
    return TextEdit(line_start, end, "")


def _complaint(
    rule: BuiltinRule, text_id: str, span: Location, params: Mapping[str, str], fix: Fix | None = None
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
