"""What is asked of a run of the linter, and what becomes of each file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from ms_tune.lint.selection import Selection
from ms_tune.lint.settings import ProjectSettings, settings_for

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.enums import Dialect
    from ms_tune.errors import MsTuneError
    from ms_tune.lint.baseline import Baseline
    from ms_tune.lint.report import FileReport, Skipped


class LintRequest(NamedTuple):
    """How files are to be checked.

    Args:
        dialect: What they are written for; None to recognise it.
        framework_version: The release that they are for; None for what settings or the dialect say.
        selection: Which checks are made.
        checklists: Checklists of the user's own, beside those of the settings.
        settings: A settings file in place of those that the folders hold; False for none.
        baseline: A file of old findings in place of the one that the settings name; False for none.
        fix: Which fixes are applied: ``safe``, ``unsafe`` (those too), or None.
        write: Whether the fixed texts are written to the files.
        skip_unknown: Leave out files that are no config, even if they are named.
        environment: Check the environment variables of this process as well.
        stdin: What the file ``-`` holds.
        stdin_filename: What that file is called, which tells its kind and whose settings hold; None for a config.
        processes: How many processes check; None for as many as are worth it.
    """

    dialect: Dialect | None = None
    framework_version: str | None = None
    selection: Selection = Selection()
    checklists: tuple[Path, ...] = ()
    settings: Path | bool = True
    baseline: Path | bool = True
    fix: Literal["safe", "unsafe"] | None = None
    write: bool = False
    skip_unknown: bool = False
    environment: bool = False
    stdin: bytes | None = None
    stdin_filename: Path | None = None
    processes: int | None = None


class LintRun(NamedTuple):
    """What holds for all files of one run: the request, and what its files hold."""

    request: LintRequest = LintRequest()  # what is asked for
    settings: ProjectSettings | None = None  # these in place of what the folders hold; None to look for them
    baseline: Baseline | None = None  # old findings

    def settings_in(self, folder: Path) -> ProjectSettings:
        """The settings that hold in a folder (an absolute path)."""
        return self.settings or settings_for(folder)


class FileOutcome(NamedTuple):
    """What became of one file: a report, or why there is none."""

    report: FileReport | None = None  # what was found (after the fixes, if there were any)
    skipped: Skipped | None = None  # why a file that the user did not name was left out
    error: MsTuneError | None = None  # why the file could not be checked
