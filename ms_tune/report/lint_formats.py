"""Convert findings for other programs: JSON, SARIF 2.1.0 (OASIS), JUnit XML, GitHub Actions annotations.

Lines and columns (in characters) count from 1; the end is exclusive. Messages are in the user's language; the
explanations of rules in SARIF are in both languages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from ms_tune.diagnostics import Diagnostic, Fix, Location, Severity
from ms_tune.encode import record_json
from ms_tune.errors import MsTuneError
from ms_tune.lint.result import FileReport, LintReport
from ms_tune.lint.settings import PROJECT_FILE, SETTINGS_FILE, ProjectSettings
from ms_tune.report.console import Console, shown_path
from ms_tune.source.files import read_bytes
from ms_tune.source.git import changed_since
from ms_tune.source.yaml import MAX_BYTES
from ms_tune.text import Language, msg, render
from ms_tune.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.lint.rules import RuleEntry

VERSION = 1
_PLACE = ("line", "column", "end_line", "end_column")
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def lint_json(report: LintReport, *, statistics: bool = False) -> dict[str, object]:
    """Return the report as a JSON object."""
    result: dict[str, object] = {
        "version": VERSION,
        "findings": [
            _finding_json(finding, file, report.settings) for file in report.files for finding in file.findings
        ],
        "read_from": {shown_path(file.path): file.read_from for file in report.files if file.read_from},
        "failed": [failure_json(error) for error in report.errors],
        "summary": report.summary,
    }
    if statistics:
        result["statistics"] = [
            {**record_json(rule, "id", "name", "severity"), "count": count, "files": files}
            for rule, count, files in report.statistics()
        ]
    return result


def failure_json(error: MsTuneError) -> dict[str, object]:
    """Return the error of a file that could not be checked as JSON."""
    return {
        "file": None if error.path is None else shown_path(Path(error.path)),
        **record_json(error, "message", "hint"),
    }


def _finding_json(finding: Diagnostic, file: FileReport, settings: ProjectSettings) -> dict[str, object]:
    path, what = shown_path(file.path), finding.consequence
    return {
        **record_json(finding, "id", "name", "severity", "message"),
        "file": path,
        **record_json(finding.location, *_PLACE),
        "key_path": finding.path,
        "consequence": None if what is None else {"id": what, "text": msg(f"consequence.{what}")},
        "related": [
            {"file": path, **record_json(related.location, *_PLACE), "message": related.message}
            for related in finding.related
        ],
        "more": {"command": f"ms-tune rule {finding.name}", "page": settings.page(finding)},
        "fix": None if finding.fix is None else _fix_json(finding.fix, file),
    }


def _fix_json(fix: Fix, file: FileReport) -> dict[str, object]:
    edits = []
    for edit in fix.edits:
        place = (*file.place(edit.start), *file.place(edit.end))
        edits.append({**dict(zip(_PLACE, place, strict=True)), "text": edit.text})
    return {**record_json(fix, "title", "safe"), "edits": edits}


_SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_REGION = ("startLine", "startColumn", "endLine", "endColumn")
_SARIF_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
# Names used by GitHub's code scanning.
_PROBLEM_SEVERITIES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "recommendation"}


def lint_sarif(report: LintReport, language: Language, rules: Mapping[str, RuleEntry]) -> dict[str, object]:
    """Return the report as a SARIF log with one run."""
    found = sorted({finding.id: finding for file in report.files for finding in file.findings}.items())
    order = {id_: index for index, (id_, _) in enumerate(found)}
    results = [
        _sarif_result(finding, print_, file, order[finding.id], language)
        for file in report.files
        for finding, print_ in zip(file.findings, file.fingerprints(), strict=True)
    ]
    run = {
        "tool": {
            "driver": {
                "name": "ms-tune",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [
                    _sarif_rule(finding, rules.get(id_), report.settings.page(finding)) for id_, finding in found
                ],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not report.errors,
                "toolExecutionNotifications": [_sarif_failure(error, language) for error in report.errors],
            }
        ],
        "results": results,
    }
    return {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _sarif_failure(error: MsTuneError, language: Language) -> dict[str, object]:
    """Return the notification for a file that could not be checked or written, at the faulty line if known."""
    failure: dict[str, object] = {"level": "error", "message": {"text": render(error.message, language)}}
    if error.path is not None:
        place = {"artifactLocation": _artifact_location(Path(error.path))}
        failure["locations"] = [
            {"physicalLocation": place | ({"region": {"startLine": error.line}} if error.line else {})}
        ]
    return failure


def _sarif_rule(finding: Diagnostic, rule: RuleEntry | None, page: str | None) -> dict[str, object]:
    where = {"helpUri": page} if page else {}
    if rule is None:
        return {"id": finding.id, "name": finding.name, **where}
    words = {name: f"{text.en}\n\n{text.zh}" for name, text in (("why", rule.why), ("help", rule.help))}
    examples = "".join(
        f"\n\n**{label}**\n\n```\n{example.rstrip()}\n```"
        for label, example in (("Bad / 错误示例", rule.bad), ("Good / 正确示例", rule.good))
        if example
    )
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.title.en},
        "fullDescription": {"text": rule.why.en},
        **where,
        "help": {
            "text": f"{words['why']}\n\n{words['help']}\n\nms-tune rule {rule.name}",
            "markdown": f"{words['why']}\n\n**How to fix it / 如何修改**\n\n{words['help']}{examples}",
        },
        "defaultConfiguration": {"level": _SARIF_LEVELS[rule.severity]},
        "properties": {
            "tags": [rule.category.value, *(dialect.value for dialect in rule.dialects)],
            "problem.severity": _PROBLEM_SEVERITIES[rule.severity],
            "title_zh": rule.title.zh,
            "why_zh": rule.why.zh,
        },
    }


def _sarif_result(
    finding: Diagnostic, print_: tuple[str, int], file: FileReport, index: int, language: Language
) -> dict[str, object]:
    artifact = _artifact_location(file.path)
    result: dict[str, object] = {
        "ruleId": finding.id,
        "ruleIndex": index,
        "level": _SARIF_LEVELS[finding.severity],
        "message": {"text": finding.sentence(language)},
        "locations": [_sarif_location(artifact, finding.location)],
        "partialFingerprints": {"msTuneFinding/v1": f"{print_[0]}:{print_[1]}"},
    }
    if finding.related:
        result["relatedLocations"] = [
            {
                "id": number,
                **_sarif_location(artifact, related.location),
                "message": {"text": related.message.say(language)},
            }
            for number, related in enumerate(finding.related)
        ]
    if finding.fix is not None:
        result["fixes"] = [_sarif_fix(finding.fix, artifact, file, language)]
    return result


def _sarif_fix(fix: Fix, artifact: Mapping[str, object], file: FileReport, language: Language) -> dict[str, object]:
    replacements = []
    for edit in fix.edits:
        region = dict(zip(_REGION, (*file.place(edit.start), *file.place(edit.end)), strict=True))
        replacements.append({"deletedRegion": region, "insertedContent": {"text": edit.text}})
    change = {"artifactLocation": artifact, "replacements": replacements}
    return {"description": {"text": render(fix.title, language)}, "artifactChanges": [change]}


def _sarif_location(artifact: Mapping[str, object], span: Location) -> dict[str, object]:
    region = dict(zip(_REGION, (span.line, span.column, span.end_line, span.end_column), strict=True))
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}


def _artifact_location(path: Path) -> dict[str, object]:
    # Relative to the working folder, as services expect; absolute if outside it.
    relative = os.path.relpath(path)
    if relative.startswith(".."):
        return {"uri": Path(os.path.abspath(path)).as_uri()}  # noqa: PTH100 - removes `..`, keeps symbolic links
    return {"uri": quote(shown_path(path) if str(path) == "-" else Path(relative).as_posix()), "uriBaseId": "%SRCROOT%"}


_QUALITY = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "info"}


def lint_gitlab(report: LintReport, language: Language) -> list[dict[str, object]]:
    """Return the report for the Code Quality widget of GitLab (``artifacts:reports:codequality``)."""
    found: list[dict[str, object]] = [
        {
            "description": finding.sentence(language),
            "check_name": f"{finding.id} {finding.name}",
            "fingerprint": f"{shown_path(file.path)}:{print_}",
            "severity": _QUALITY[finding.severity],
            "location": {"path": shown_path(file.path), "lines": {"begin": finding.location.line}},
        }
        for file in report.files
        for finding, print_ in zip(file.findings, file.fingerprints(), strict=True)
    ]
    for error in report.errors:
        name = shown_path(Path(error.path or "-"))
        found.append(
            {
                "description": render(error.message, language),
                "check_name": "unreadable",
                "fingerprint": f"{name}:unreadable",
                "severity": "critical",
                "location": {"path": name, "lines": {"begin": error.line or 1}},
            }
        )
    return found


_XML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_XML_ATTRIBUTE = _XML | str.maketrans({'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})
# Characters that XML 1.0 does not allow, even escaped.
_FORBIDDEN = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"


def lint_junit(report: LintReport, console: Console) -> str:
    """Return the report as XML; findings of the lowest severity do not fail a test case but appear in its output."""
    failures = sum(_count_failures(file) for file in report.files)
    tests = sum(max(len(file.findings), 1) for file in report.files)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="ms-tune lint" tests="{tests}" failures="{failures}" errors="0">',
        *(line for file in report.files for line in _junit_suite(file, console)),
        "</testsuites>",
    ]
    return "\n".join(lines)


def _junit_suite(file: FileReport, console: Console) -> Iterator[str]:
    name = _xml_attribute(shown_path(file.path))
    count = max(len(file.findings), 1)
    yield f'  <testsuite name={name} tests="{count}" failures="{_count_failures(file)}" errors="0">'
    if not file.findings:
        yield f'    <testcase classname={name} name="ms-tune lint"/>'
    for finding in file.findings:
        message, *advice = _message_lines(finding, console)
        place = f"{shown_path(file.path)}:{finding.location.line}:{finding.location.column}"
        words = [place, message, *advice]
        case = _xml_attribute(f"{finding.id} {finding.name} ({finding.location.line}:{finding.location.column})")
        yield f"    <testcase classname={name} name={case}>"
        if finding.severity is Severity.INFO:
            yield f"      <system-out>{_xml_text(chr(10).join(words))}</system-out>"
        else:
            kind = _xml_attribute(finding.severity.value)
            yield f"      <failure type={kind} message={_xml_attribute(message)}>{_xml_text(chr(10).join(words))}</failure>"
        yield "    </testcase>"
    yield "  </testsuite>"


def _count_failures(file: FileReport) -> int:
    return sum(finding.severity is not Severity.INFO for finding in file.findings)


def _xml_text(text: str) -> str:
    return re.sub(_FORBIDDEN, "�", text).translate(_XML)


def _xml_attribute(text: str) -> str:
    return f'"{re.sub(_FORBIDDEN, "�", text).translate(_XML_ATTRIBUTE)}"'


def write_github(report: LintReport, console: Console) -> None:
    """Write one workflow command per finding, worst first: GitHub shows ten of each level per step."""
    for error in report.errors:
        write_failure(error, "ms-tune lint", console)
    found = [(finding, file) for file in report.files for finding in file.findings]
    for finding, file in sorted(found, key=lambda pair: pair[0].severity.rank):
        span = finding.location
        places = {"file": shown_path(file.path), "line": span.line, "endLine": span.end_line}
        if span.line == span.end_line:  # GitHub rejects columns for a range of lines
            places |= {"col": span.column, "endColumn": span.end_column}
        title, message = f"{finding.id} {finding.name}", "\n".join(_message_lines(finding, console))
        console.write_raw(format_annotation(LEVELS[finding.severity], places, title, message))


def _message_lines(finding: Diagnostic, console: Console) -> Iterator[str]:
    yield finding.sentence(console.language)
    if finding.help is not None:
        yield console.labelled(console.text("lint.help-label"), console.say(finding.help))


def write_failure(error: MsTuneError, title: str, console: Console) -> None:
    """Write an annotation for a file that cannot be read, at the faulty line if known."""
    if error.path is not None:
        hint = f"\n{console.say(error.hint)}" if error.hint is not None else ""
        places = {"file": shown_path(Path(error.path)), "line": error.line or 1}
        console.write_raw(format_annotation("error", places, title, f"{console.say(error.message)}{hint}"))


def format_annotation(level: str, places: Mapping[str, object], title: str, message: str) -> str:
    """Return one workflow command for an annotation."""
    properties = ",".join(f"{name}={_escape_property(str(value))}" for name, value in places.items())
    return f"::{level} {properties},title={_escape_property(title)}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    # Escaped as in `@actions/core` (toolkit, `command.ts`).
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def name_brought_files(title: str, baseline: Path | None, console: Console) -> None:
    """Annotate settings and a baseline that a pull request brings itself: they may hide its findings."""
    base = os.environ.get("GITHUB_BASE_REF")
    names = [f"*{SETTINGS_FILE}", f"*{PROJECT_FILE}", *([os.path.relpath(baseline)] if baseline else [])]
    try:
        brought = changed_since(f"origin/{base}", Path(), names) if base else []
    except MsTuneError as error:
        console.warn(msg("check.brought.unknown", reason=error.message))
        return
    for path in brought:
        if path.name != PROJECT_FILE or b"ms-tune" in read_bytes(path, MAX_BYTES):
            text = console.text("check.brought")
            console.write_raw(format_annotation("warning", {"file": shown_path(path), "line": 1}, title, text))
