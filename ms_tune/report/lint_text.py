"""Findings for people: each with the lines it is about."""

from __future__ import annotations

import unicodedata

from ms_tune.diagnostics import Severity
from ms_tune.records import Record
from ms_tune.report.console import shown_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic, Location
    from ms_tune.lint.result import FileReport, LintReport
    from ms_tune.lint.settings import ProjectSettings
    from ms_tune.report.console import Console

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_WIDTH = 160  # longer lines are shown in part
_BEFORE = 40  # how much of a long line is shown before the place


class _Label(Record):
    span: Location
    mark: str
    text: str
    colour: str


def write_lint(report: LintReport, console: Console, *, concise: bool = False, statistics: bool = False) -> None:
    """Write the report to standard output; concisely: one line a finding."""
    for file in report.files:
        for finding in file.findings if not statistics else ():
            if concise:
                console.write_whole(_line(finding, file, console))
            else:
                console.write_prose(_finding(finding, file, report.settings, console) + "\n")
    if statistics:
        _write_statistics(report, console)
    if report.files:
        console.write(_summary(report, console))


def _line(finding: Diagnostic, file: FileReport, console: Console) -> str:
    place = f"{shown_path(file.path)}:{finding.location.line}:{finding.location.column}"
    head = console.paint(_head(finding, console), _COLOURS[finding.severity])
    message = " ".join(finding.sentence(console.language).split())
    return f"{place}: {head} {finding.id}: {message}"


def _head(finding: Diagnostic, console: Console) -> str:
    return f"{console.text(f'lint.severity.{finding.severity.value}')}[{finding.name}]"


def _write_statistics(report: LintReport, console: Console) -> None:
    """How often each check found something."""
    rows = report.statistics()
    width = max((len(str(count)) for _, count, _ in rows), default=0)
    for finding, count, files in rows:
        head = console.paint(_head(finding, console), _COLOURS[finding.severity])
        console.write(f"{count:>{width}}  {head} {finding.id}  {console.text('lint.statistics.files', files=files)}")


def _summary(report: LintReport, console: Console) -> str:
    found = report.summary
    params = found._asdict()
    parts = [console.text("lint.total" if found.errors + found.warnings + found.infos else "lint.clean", **params)]
    others = {
        "lint.unreadable": found.unreadable,
        "lint.unwritten": len(report.unwritten),
        "lint.fixed": found.fixed,
        "lint.fixable": found.fixable,
        "lint.fixable.unsafe": found.fixable_unsafe,
        "lint.ignored": found.ignored,
        "lint.baselined": found.baselined,
        "lint.skipped.count": found.skipped,
    }
    for text_id, count in others.items():
        parts += [console.text(text_id, count=count)] if count else []
    for release in found.checked_for:
        framework, version, installed = release
        text_id = "lint.rules.not-installed" if installed else "lint.rules"
        if release.is_installed:
            text_id = "lint.rules.installed"
        parts.append(console.text(text_id, framework=framework, version=version, installed=installed))
    return " · ".join(parts)


def _finding(finding: Diagnostic, file: FileReport, settings: ProjectSettings, console: Console) -> str:
    colour = _COLOURS[finding.severity]
    labels = [_Label(finding.location, "^", "", colour)]
    labels += [
        _Label(related.location, "-", related.message.say(console.language), "cyan") for related in finding.related
    ]
    margin = len(str(max(label.span.line for label in labels)))
    head = console.paint(_head(finding, console), colour)
    bar = console.paint(f"{'':{margin}} |", "dim")
    place = f"{shown_path(file.path)}:{finding.location.line}:{finding.location.column}"
    lines = [
        f"{head} {finding.id}: {finding.message.say(console.language)}",
        f"{'':{margin}}{console.paint('-->', 'dim')} {place}",
        bar,
        *_frame(file, labels, margin, console),
    ]
    remarks = _remarks(finding, settings.page(finding), console)
    lines.append(bar)
    lines += [
        f"{'':{margin}} {console.paint('=', 'dim')} {console.labelled(console.paint(console.text(label), 'cyan'), words)}"
        for label, words in remarks
    ]
    return "\n".join(lines)


def _remarks(finding: Diagnostic, page: str | None, console: Console) -> list[tuple[str, str]]:
    """What to do about a finding, and where to read more: each a label's text id and the words."""
    remarks = []
    if finding.consequence is not None:
        remarks.append(("consequence.label", console.text(f"consequence.{finding.consequence}")))
    if finding.help is not None:
        remarks.append(("lint.help-label", finding.help.say(console.language)))
    if finding.fix is not None:
        text_id = "lint.fix.safe" if finding.fix.safe else "lint.fix.unsafe"
        remarks.append(("lint.fix-label", console.text(text_id, title=console.say(finding.fix.title))))
    elif finding.unfixable is not None:
        remarks.append(("lint.fix-label", console.text("lint.fix.none", reason=console.say(finding.unfixable))))
    more = f"ms-tune rule {finding.name}"
    remarks.append(("lint.more-label", f"{more}, {page}" if page else more))
    return remarks


def _frame(file: FileReport, labels: list[_Label], margin: int, console: Console) -> list[str]:
    """The lines that the labels are about, each with its marks below it."""
    lines = []
    last = 0
    for number in sorted({label.span.line for label in labels}):
        if last and number > last + 1:
            lines.append(console.paint("...", "dim"))
        here = [label for label in labels if label.span.line == number]
        text = file.line(number)
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
    """Characters that take the room that :func:`_columns` counts and move no cursor."""
    return "".join(character if character.isprintable() else " " for character in text)


def _columns(text: str) -> int:
    """Columns on a terminal: Chinese characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
