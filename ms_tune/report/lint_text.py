"""Show findings in the terminal with their source lines, and fixes as diffs for ``patch`` and ``git apply``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ms_tune.diagnostics import Diagnostic, Location
from ms_tune.facts.query import Release
from ms_tune.lint.result import FileReport, LintReport, LintSummary
from ms_tune.lint.settings import ProjectSettings
from ms_tune.records import Record
from ms_tune.report.console import SEVERITY_COLOURS, Console, shown_path, text_width
from ms_tune.source.files import diff_lines
from ms_tune.text import Language

_WIDTH = 160  # longer lines are shortened
_MANY = 5  # number of files with findings from which a table of them is shown
_BEFORE = 40  # characters of a long line shown before the finding


class _Label(Record):
    span: Location
    mark: str
    text: str
    colour: str


def write_lint(
    report: LintReport, console: Console, *, concise: bool = False, statistics: bool = False, quiet: bool = False
) -> None:
    """Write the report: ``concise`` one line per finding, ``quiet`` only the summary line."""
    if quiet:
        if report.files:
            console.write(_join_sentences(_list_results(report.summary, console), console))
        return
    for file in report.files:
        for finding in file.findings if not statistics else ():
            if concise:
                console.write_raw(_concise_line(finding, file, report.settings, console))
            else:
                console.write_prose(_finding_text(finding, file, report.settings, console) + "\n")
        for line in _list_fixes(file, console):
            console.write_raw(line)
    if statistics:
        _write_statistics(report, console)
    elif not concise:
        _write_files(report, console)
    if report.files:
        _write_summary(report, console)


def _write_files(report: LintReport, console: Console) -> None:
    found = [file for file in report.files if file.findings]
    if len(found) < _MANY:
        return
    console.write_text("lint.by-file")
    for file in found:
        console.write_raw(f"{len(file.findings):>6}  {shown_path(file.path)}")
    console.write("")


def _concise_line(finding: Diagnostic, file: FileReport, settings: ProjectSettings, console: Console) -> str:
    head = _linked_head(finding, settings, console)
    message = " ".join(finding.sentence(console.language).split())
    return f"{_linked_place(finding, file, console)}: {head} {finding.id}: {message}"


def _linked_place(finding: Diagnostic, file: FileReport, console: Console) -> str:
    place = f"{shown_path(file.path)}:{finding.location.line}:{finding.location.column}"
    return console.link(place, file.path)


def _linked_head(finding: Diagnostic, settings: ProjectSettings, console: Console) -> str:
    head = console.paint(_head_text(finding, console), SEVERITY_COLOURS[finding.severity])
    return console.link(head, settings.page(finding))


def _head_text(finding: Diagnostic, console: Console) -> str:
    return f"{console.text(f'lint.severity.{finding.severity.value}')}[{finding.name}]"


def _write_statistics(report: LintReport, console: Console) -> None:
    rows = report.statistics()
    width = max((len(str(count)) for _, count, _ in rows), default=0)
    for finding, count, files in rows:
        head = console.paint(_head_text(finding, console), SEVERITY_COLOURS[finding.severity])
        console.write(f"{count:>{width}}  {head} {finding.id}  {console.text('lint.statistics.files', files=files)}")


def _list_fixes(file: FileReport, console: Console) -> Iterator[str]:
    for title, count in Counter(console.say(title) for title in file.fixes).items():
        words = title if count == 1 else f"{title} (x{count})"
        yield console.text("lint.fixed.one", file=shown_path(file.path), title=words)


def _write_summary(report: LintReport, console: Console) -> None:
    """Write the files and releases that were checked, then the results."""
    found = report.summary
    checked = console.listed(_release_text(release, console) for release in found.checked_for)
    counts = {
        "lint.unreadable": found.unreadable,
        "lint.unwritten": len(report.unwritten),
        "lint.skipped.count": found.skipped,
        "lint.ignored": found.ignored,
        "lint.baselined": found.baselined,
    }
    parts = [console.text("lint.checked", files=found.files, versions=checked)]
    parts += [console.text(text_id, count=count) for text_id, count in counts.items() if count]
    console.write(_join_sentences(parts, console))
    console.write(_join_sentences(_list_results(found, console), console))


def _release_text(release: Release, console: Console) -> str:
    text_id = "lint.rules.not-installed" if release.installed else "lint.rules"
    if release.is_installed:
        text_id = "lint.rules.installed"
    framework, version, installed = release
    return console.text(text_id, framework=framework, version=version, installed=installed)


def _list_results(found: LintSummary, console: Console) -> Iterator[str]:
    counts = {"error": found.errors, "warning": found.warnings, "info": found.infos}
    total = sum(counts.values())
    severities = console.listed(
        console.text(f"lint.count.{severity}", count=count) for severity, count in counts.items() if count
    )
    if found.fixed:
        yield console.text("lint.fixed", count=found.fixed)
    if total:
        text_id = "lint.remaining" if found.fixed else "lint.total"
    else:
        text_id = "lint.remaining.none" if found.fixed else "lint.total.none"
    yield console.text(text_id, count=total, severities=severities)
    safe, unsafe = found.fixable, found.fixable_unsafe
    if safe and unsafe:
        yield console.text("lint.fixable.both", count=safe, more=unsafe)
    elif safe or unsafe:
        yield console.text("lint.fixable" if safe else "lint.fixable.unsafe", count=safe or unsafe)


def _join_sentences(sentences: Iterable[str], console: Console) -> str:
    return ("" if console.language is Language.ZH else " ").join(sentences)


def _finding_text(finding: Diagnostic, file: FileReport, settings: ProjectSettings, console: Console) -> str:
    colour = SEVERITY_COLOURS[finding.severity]
    labels = [_Label(finding.location, "^", "", colour)]
    labels += [
        _Label(related.location, "-", related.message.say(console.language), "cyan") for related in finding.related
    ]
    margin = len(str(max(label.span.line for label in labels)))
    bar = console.paint(f"{'':{margin}} |", "dim")
    lines = [
        f"{_linked_head(finding, settings, console)} {finding.id}: {finding.message.say(console.language)}",
        f"{'':{margin}}{console.paint('-->', 'dim')} {_linked_place(finding, file, console)}",
        bar,
        *_frame_lines(file, labels, margin, console),
    ]
    remarks = _list_remarks(finding, settings.page(finding), console)
    lines.append(bar)
    lines += [
        f"{'':{margin}} {console.paint('=', 'dim')} {console.labelled(console.paint(console.text(label), 'cyan'), words)}"
        for label, words in remarks
    ]
    return "\n".join(lines)


def _list_remarks(finding: Diagnostic, page: str | None, console: Console) -> list[tuple[str, str]]:
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


def _frame_lines(file: FileReport, labels: list[_Label], margin: int, console: Console) -> list[str]:
    lines = []
    last = 0
    for number in sorted({label.span.line for label in labels}):
        if last and number > last + 1:
            lines.append(console.paint("...", "dim"))
        here = [label for label in labels if label.span.line == number]
        # Only characters that have a width and do not move the cursor.
        text = "".join(character if character.isprintable() else " " for character in file.line(number))
        start, text = _find_window(text, min(label.span.column for label in here) - 1)
        lines.append(f"{console.paint(f'{number:>{margin}} |', 'dim')} {text}".rstrip())
        bar = console.paint(f"{'':{margin}} |", "dim")
        lines += [
            f"{bar} {_mark_lines(label, text, start, console)}"
            for label in sorted(here, key=lambda one: one.mark != "^")
        ]
        last = number
    return lines


def _mark_lines(label: _Label, text: str, start: int, console: Console) -> str:
    first = label.span.column - 1 - start
    end = label.span.end_column - 1 - start if label.span.end_line == label.span.line else len(text.rstrip())
    width = max(text_width(text[first : max(end, first)]), 1)
    return " " * text_width(text[:first]) + console.paint(f"{label.mark * width} {label.text}".rstrip(), label.colour)


def _find_window(text: str, place: int) -> tuple[int, str]:
    if len(text) <= _WIDTH:
        return 0, text
    start = max(place - _BEFORE, 0)
    return start, text[start : start + _WIDTH]


_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def write_diff(report: LintReport, console: Console) -> int:
    """Write a diff for every file that fixes change; return the number of files."""
    changed = 0
    for file in report.files:
        if file.original is not None:
            changed += 1
            name = shown_path(file.path)
            for line in diff_lines(file.original, file.text, f"a/{name}", f"b/{name}"):
                console.write_raw(console.paint(line, _DIFF_COLOURS[line[0]]) if line[:1] in _DIFF_COLOURS else line)
    console.note(console.text("lint.diff", count=report.summary.fixed, files=changed))
    return changed
