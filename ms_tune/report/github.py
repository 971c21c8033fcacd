"""Write workflow commands of GitHub Actions, which annotate lines of a change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ms_tune.diagnostics import Severity
from ms_tune.errors import MsTuneError
from ms_tune.report.console import Console, shown_path

LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def write_failure(error: MsTuneError, title: str, console: Console) -> None:
    """Write an annotation for a file that cannot be read, at the faulty line if known."""
    path, line = getattr(error, "path", None), getattr(error, "line", None)
    if path is not None:
        hint = f"\n{console.say(error.hint)}" if error.hint is not None else ""
        places = {"file": shown_path(Path(path)), "line": line or 1}
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
