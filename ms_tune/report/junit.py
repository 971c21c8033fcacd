"""Findings as a JUnit report: every file is a suite, every finding a failed case, a clean file one passed case."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from ms_tune.diagnostics import Severity
from ms_tune.report.console import shown_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.lint.result import FileReport, LintReport
    from ms_tune.report.console import Console

# What XML 1.0 cannot hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def lint_junit(report: LintReport, console: Console) -> str:
    """The report as XML. Findings of the lowest severity do not fail a case; they stand in its output."""
    failures = sum(_failures(file) for file in report.files)
    tests = sum(max(len(file.findings), 1) for file in report.files)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="ms-tune lint" tests="{tests}" failures="{failures}" errors="0">',
        *(line for file in report.files for line in _suite(file, console)),
        "</testsuites>",
    ]
    return "\n".join(lines)


def _suite(file: FileReport, console: Console) -> Iterator[str]:
    name = _attribute(shown_path(file.path))
    count = max(len(file.findings), 1)
    yield f'  <testsuite name={name} tests="{count}" failures="{_failures(file)}" errors="0">'
    if not file.findings:
        yield f'    <testcase classname={name} name="ms-tune lint"/>'
    for finding in file.findings:
        message = finding.sentence(console.language)
        place = f"{shown_path(file.path)}:{finding.location.line}:{finding.location.column}"
        words = [place, message]
        if finding.help is not None:
            words.append(console.labelled(console.text("lint.help-label"), finding.help.say(console.language)))
        case = _attribute(f"{finding.id} {finding.name} ({finding.location.line}:{finding.location.column})")
        yield f"    <testcase classname={name} name={case}>"
        if finding.severity is Severity.INFO:
            yield f"      <system-out>{_text(chr(10).join(words))}</system-out>"
        else:
            kind = _attribute(finding.severity.value)
            yield f"      <failure type={kind} message={_attribute(message)}>{_text(chr(10).join(words))}</failure>"
        yield "    </testcase>"
    yield "  </testsuite>"


def _failures(file: FileReport) -> int:
    return sum(finding.severity is not Severity.INFO for finding in file.findings)


def _text(text: str) -> str:
    return escape(_FORBIDDEN.sub("\ufffd", text))


def _attribute(text: str) -> str:
    return quoteattr(_FORBIDDEN.sub("\ufffd", text))
