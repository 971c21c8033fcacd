"""Findings for people: each with the lines it is about."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.lint.finding import Severity
from ms_tune.lint.versions import FRAMEWORKS

if TYPE_CHECKING:
    from ms_tune.config.source import Span
    from ms_tune.lint.finding import Finding
    from ms_tune.lint.report import FileReport, Report
    from ms_tune.render.console import Console

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_WIDTH = 160  # longer lines are shown in part
_BEFORE = 40  # how much of a long line is shown before the place


class _Label(NamedTuple):
    span: Span
    mark: str
    text: str
    colour: str


def write_lint(report: Report, console: Console) -> None:
    """Write the report to standard output."""
    for file in report.files:
        for finding in file.findings:
            console.write(_finding(finding, file, console) + "\n")
    if report.files:
        console.write(_summary(report, console))


def _summary(report: Report, console: Console) -> str:
    counts = {f"{severity.value}s": report.count(severity) for severity in Severity}
    text_id = "lint.total" if any(counts.values()) else "lint.clean"
    parts = [console.text(text_id, files=len(report.files), **counts)]
    if report.unreadable:
        parts.append(console.text("lint.unreadable", count=report.unreadable))
    targets = sorted({(FRAMEWORKS[file.dialect], file.version) for file in report.files})
    parts += [console.text("lint.rules", framework=name, version=version) for name, version in targets]
    return " · ".join(parts)


def _finding(finding: Finding, file: FileReport, console: Console) -> str:
    colour = _COLOURS[finding.severity]
    labels = [_Label(finding.span, "^", "", colour)]
    labels += [_Label(related.span, "-", related.message.say(console.language), "cyan") for related in finding.related]
    margin = len(str(max(label.span.line for label in labels)))
    head = console.paint(f"{console.text(f'lint.severity.{finding.severity.value}')}[{finding.name}]", colour)
    bar = console.paint(f"{'':{margin}} |", "dim")
    place = f"{file.source.path}:{finding.span.line}:{finding.span.column}"
    lines = [
        f"{head} {finding.id}: {finding.message.say(console.language)}",
        f"{'':{margin}}{console.paint('-->', 'dim')} {place}",
        bar,
        *_frame(file, labels, margin, console),
    ]
    if finding.help is not None:
        label = console.paint(f"{console.text('lint.help-label')}:", "cyan")
        lines += [bar, f"{'':{margin}} {console.paint('=', 'dim')} {label} {finding.help.say(console.language)}"]
    return "\n".join(lines)


def _frame(file: FileReport, labels: list[_Label], margin: int, console: Console) -> list[str]:
    """The lines that the labels are about, each with its marks below it."""
    lines = []
    last = 0
    for number in sorted({label.span.line for label in labels}):
        if last and number > last + 1:
            lines.append(console.paint("...", "dim"))
        here = [label for label in labels if label.span.line == number]
        text = file.source.line(number)
        start, text = _window(text, min(label.span.column for label in here) - 1)
        lines.append(f"{console.paint(f'{number:>{margin}} |', 'dim')} {_shown(text)}".rstrip())
        bar = console.paint(f"{'':{margin}} |", "dim")
        lines += [
            f"{bar} {_marks(label, text, start, console)}" for label in sorted(here, key=lambda one: one.mark != "^")
        ]
        last = number
    return lines


def _marks(label: _Label, text: str, start: int, console: Console) -> str:
    """The marks under a span (under its first line, if it has several) and what there is to say."""
    first = label.span.column - 1 - start
    end = label.span.end_column - 1 - start if label.span.end_line == label.span.line else len(text.rstrip())
    width = max(_columns(text[first : max(end, first)]), 1)
    return " " * _columns(text[:first]) + console.paint(f"{label.mark * width} {label.text}".rstrip(), label.colour)


def _window(text: str, place: int) -> tuple[int, str]:
    """Where the shown part of a line starts, and that part."""
    if len(text) <= _WIDTH:
        return 0, text
    start = max(place - _BEFORE, 0)
    return start, text[start : start + _WIDTH]


def _shown(text: str) -> str:
    return "".join(_character(character) for character in text)


def _character(character: str) -> str:
    """A character that takes the room that :func:`_columns` counts and moves no cursor."""
    return character if character.isprintable() else " "


def _columns(text: str) -> int:
    """Columns on a terminal: Chinese characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
