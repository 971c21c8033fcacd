"""A verdict, and what makes figures doubtful, as every command shows them: in words, in lines, in JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.report.console import terminal_width, wrap
from ms_tune.verdict.outcome import Fit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.report.console import Console
    from ms_tune.verdict.outcome import Verdict

_UNIT, _GLUE = re.compile(r"(?<=\d) (?=[GMK]iB)"), "\ue000"
_COLOURS = {Fit.FITS: "green", Fit.TIGHT: "yellow", Fit.DOES_NOT_FIT: "red", None: "yellow"}


def word(verdict: Verdict | None, console: Console) -> str:
    """One word, for a table; a dash where nothing is said about it."""
    if verdict is None:
        return "–"
    return console.text(f"verdict.word.{verdict.outcome.value if verdict.outcome else 'none'}")


def sentence(verdict: Verdict, console: Console) -> str:
    """The verdict, in its colour."""
    return console.paint(console.say(verdict.sentence), _COLOURS[verdict.outcome])


def verdict_lines(verdict: Verdict, console: Console) -> Iterator[str]:
    """The verdict, then what it was made of."""
    yield console.text("verdict.line.verdict", sentence=sentence(verdict, console))
    for ground in verdict.grounds:
        text = _UNIT.sub(_GLUE, console.say(ground))  # a size and its unit stay together
        for number, line in enumerate(wrap(text, max(terminal_width() - 6, 40), prose=True)):
            yield f"  {'  ' if number else '- '}{line.replace(_GLUE, ' ')}"


def verdict_json(verdict: Verdict, console: Console) -> dict[str, object]:
    """The keys that every command's JSON has; sizes are bytes."""
    limit = verdict.limit
    return {
        "verdict": verdict.outcome.value if verdict.outcome else None,
        "no_verdict_because": console.say(verdict.no_verdict_because) if verdict.no_verdict_because else None,
        "limit_bytes": limit.bytes if limit else None,
        "limit_source": console.say(limit.source) if limit else None,
        "reserve": {item.name: item.bytes for item in verdict.reserve},
    }


def doubt_line(doubt: Diagnostic, label: str, console: Console) -> str:
    """A doubt about figures in one line."""
    hint = f" ({console.say(doubt.help)})" if doubt.help else ""
    return f"{console.labelled(label, console.say(doubt.message))}{hint} [{doubt.id}]"


def doubt_json(doubt: Diagnostic, console: Console) -> dict[str, object]:
    """A doubt about figures."""
    return {
        "id": doubt.id,
        "serious": doubt.severity is Severity.ERROR,
        "message": console.say(doubt.message),
        "hint": console.say(doubt.help) if doubt.help else None,
    }
