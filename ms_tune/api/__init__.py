"""ms-tune for Python programs: what the command line itself calls.

::

    from ms_tune import LintRequest, api

    report = api.lint("train.yaml", request=LintRequest(framework_version="1.8"))
    for finding in report.findings:
        print(finding.location.line, finding.id)

Arguments and results are records that cannot be changed, and every failure that a user can do something about is a
:class:`~ms_tune.errors.MsTuneError`. Nothing is printed; nothing is written unless the request says so. The engines are
imported when they are called, so that importing this module costs nothing.
"""

from ms_tune.api._check import changed_files, check
from ms_tune.api._lint import checklists_for, course, lint, rules, write_baseline, wrong_examples

__all__ = [
    "changed_files",
    "check",
    "checklists_for",
    "course",
    "lint",
    "rules",
    "write_baseline",
    "wrong_examples",
]
