"""Checks of configs, scripts and code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.lint.result import LintReport, LintRequest
    from ms_tune.lint.rules import CoursePart, RuleEntry
    from ms_tune.text import Message


def lint(*files: str | Path, request: LintRequest | None = None) -> LintReport:
    """Check configs, training scripts and launch scripts; fix them if the request says so.

    A file that cannot be read does not keep the others from being checked: it is among ``errors`` of the report.

    Args:
        files: Files, and folders in which to look for them; ``-`` is ``stdin`` of the request.
        request: How to check; None for what the settings files say.

    Raises:
        UsageError: A path, a check or a profile that there is not.
        ConfigError: The settings, a checklist or the baseline are wrong.

    Example::

        report = api.lint("configs/", request=LintRequest(selection=Selection(select=("MST4",))))
        errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    """
    from ms_tune.lint.result import LintRequest  # noqa: PLC0415 - start-up time
    from ms_tune.lint.runner import lint_files  # noqa: PLC0415 - start-up time

    return lint_files([str(file) for file in files], request or LintRequest())


def checklists_for(folder: str | Path) -> tuple[Path, ...]:
    """The checklists that the settings of a folder name, those of the nearest settings file in it or above it.

    Args:
        folder: The folder.

    Raises:
        ConfigError: The settings file is not one.

    Example::

        rules = api.rules(*api.checklists_for("configs"))
    """
    from ms_tune.lint.settings import settings_for  # noqa: PLC0415 - start-up time

    return settings_for(Path(folder).absolute()).checklists


def wrong_examples(*checklists: str | Path) -> tuple[Message, ...]:
    """What is wrong with the examples of a user's own checks: a bad one that is not found, a good one that is.

    Args:
        checklists: The files.

    Raises:
        ConfigError: One of them is not a checklist.

    Example::

        assert not api.wrong_examples("team.yaml")
    """
    from ms_tune.lint import rules as examples  # noqa: PLC0415 - start-up time
    from ms_tune.lint.checklist import read_checklist  # noqa: PLC0415 - as above

    return tuple(examples.wrong_examples(check for file in checklists for check in read_checklist(Path(file)).checks))


def course(rules: Iterable[RuleEntry]) -> tuple[CoursePart, ...]:
    """Checks in the order in which one learns them, by topic.

    Args:
        rules: The checks.

    Example::

        titles = [part.title.en for part in api.course(api.rules())]
    """
    from ms_tune.lint import rules as topics  # noqa: PLC0415 - start-up time

    return topics.course(rules)


def rules(*checklists: str | Path) -> tuple[RuleEntry, ...]:
    """Every check that :func:`lint` can make, with its texts and examples.

    Args:
        checklists: Checklists of the user's own.

    Raises:
        ConfigError: One of them is wrong.

    Example::

        names = {rule.id: rule.name for rule in api.rules()}
    """
    from ms_tune.lint.rules import all_rules  # noqa: PLC0415 - start-up time

    return all_rules(list(map(Path, checklists)))


def write_baseline(report: LintReport, file: str | Path) -> int:
    """Keep the findings of a report as old ones, which later runs with this baseline pass over.

    Args:
        report: What :func:`lint` found without a baseline.
        file: The file to write.

    Returns:
        How many findings it holds.

    Raises:
        ConfigError: The file cannot be written.

    Example::

        api.write_baseline(api.lint("configs/", request=LintRequest(baseline=False)), "baseline.json")
    """
    from ms_tune.lint import baseline  # noqa: PLC0415 - start-up time

    return baseline.write_baseline(Path(file), ((one.path, one.text, one.findings) for one in report.files))
