"""Findings as SARIF 2.1.0 (OASIS), for code-scanning services.

Messages are in the user's language; what explains a rule stands in both.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ms_tune.diagnostics import Severity
from ms_tune.report.console import shown_path
from ms_tune.text import Language, render
from ms_tune.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.diagnostics import Diagnostic, Fix, Location
    from ms_tune.lint.result import FileReport, LintReport
    from ms_tune.lint.rules import RuleEntry

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
# As GitHub's code scanning calls them.
_PROBLEM_SEVERITIES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "recommendation"}


def lint_sarif(report: LintReport, language: Language, rules: Mapping[str, RuleEntry]) -> dict[str, object]:
    """The report as a SARIF log with one run.

    Args:
        report: What was found.
        language: The language of the messages.
        rules: What there is to know about each check, by its id.
    """
    found = sorted({finding.id: finding for file in report.files for finding in file.findings}.items())
    order = {id_: index for index, (id_, _) in enumerate(found)}
    results = [
        _result(finding, print_, file, order[finding.id], language)
        for file in report.files
        for finding, print_ in zip(file.findings, file.fingerprints(), strict=True)
    ]
    run = {
        "tool": {
            "driver": {
                "name": "ms-tune",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(finding, rules.get(id_), report.settings.page(finding)) for id_, finding in found],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not report.errors}],
        "results": results,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(finding: Diagnostic, rule: RuleEntry | None, page: str | None) -> dict[str, object]:
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
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {
            "tags": [rule.category.value, *(dialect.value for dialect in rule.dialects)],
            "problem.severity": _PROBLEM_SEVERITIES[rule.severity],
            "title_zh": rule.title.zh,
            "why_zh": rule.why.zh,
        },
    }


def _result(
    finding: Diagnostic, print_: tuple[str, int], file: FileReport, index: int, language: Language
) -> dict[str, object]:
    artifact = _artifact(file.path)
    result: dict[str, object] = {
        "ruleId": finding.id,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.sentence(language)},
        "locations": [_location(artifact, finding.location)],
        "partialFingerprints": {"msTuneFinding/v1": f"{print_[0]}:{print_[1]}"},
    }
    if finding.related:
        result["relatedLocations"] = [
            {"id": number, **_location(artifact, related.location), "message": {"text": related.message.say(language)}}
            for number, related in enumerate(finding.related)
        ]
    if finding.fix is not None:
        result["fixes"] = [_fix(finding.fix, artifact, file, language)]
    return result


def _fix(fix: Fix, artifact: Mapping[str, object], file: FileReport, language: Language) -> dict[str, object]:
    replacements = []
    for edit in fix.edits:
        (line, column), (end_line, end_column) = file.place(edit.start), file.place(edit.end)
        region = {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}
        replacements.append({"deletedRegion": region, "insertedContent": {"text": edit.text}})
    change = {"artifactLocation": artifact, "replacements": replacements}
    return {"description": {"text": render(fix.title, language)}, "artifactChanges": [change]}


def _location(artifact: Mapping[str, object], span: Location) -> dict[str, object]:
    region = {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}


def _artifact(path: Path) -> dict[str, object]:
    """The file relative to the folder where ms-tune runs, as services want it; else absolute."""
    relative = os.path.relpath(path)
    if relative.startswith(".."):
        return {"uri": Path(os.path.abspath(path)).as_uri()}  # noqa: PTH100 - without `..`, links as they are
    return {"uri": quote(shown_path(path) if str(path) == "-" else Path(relative).as_posix()), "uriBaseId": "%SRCROOT%"}
