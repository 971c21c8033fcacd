"""ms-tune: check MindSpore large-model training configs and estimate their memory before any NPU is used.

The functions, requests and results of the public Python interface can be imported from here::

    import ms_tune

    report = ms_tune.lint_files("train.yaml", request=ms_tune.LintRequest(framework_version="1.8"))
    for finding in report.findings:
        print(finding.location.line, finding.id)

Requests and results are immutable records. Every failure that a user can act on is an :class:`MsTuneError`. Nothing is
printed; nothing is written unless the request asks for it. Names are imported on first use, because the command line
imports this package first and needs few of them.
"""

from __future__ import annotations

from importlib import import_module

from ms_tune.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic as Diagnostic
    from ms_tune.diagnostics import Severity as Severity
    from ms_tune.dialects import LayerPlan as LayerPlan
    from ms_tune.dialects import LayerSpec as LayerSpec
    from ms_tune.dryrun.command_result import CommandResult as CommandResult
    from ms_tune.dryrun.request import CommandRequest as CommandRequest
    from ms_tune.dryrun.request import DryrunRequest as DryrunRequest
    from ms_tune.dryrun.request import Setting as Setting
    from ms_tune.dryrun.result import DryrunResult as DryrunResult
    from ms_tune.dryrun.result import SweepResult as SweepResult
    from ms_tune.dryrun.run import dryrun_job as dryrun_job
    from ms_tune.enums import Dialect as Dialect
    from ms_tune.enums import RecomputeMode as RecomputeMode
    from ms_tune.errors import MsTuneError as MsTuneError
    from ms_tune.fit.result import ConfigFit as ConfigFit
    from ms_tune.fit.result import ConfigFitRequest as ConfigFitRequest
    from ms_tune.fit.run import fit_config as fit_config
    from ms_tune.footprint.report import MemoryRequest as MemoryRequest
    from ms_tune.footprint.report import analyse_memory as analyse_memory
    from ms_tune.footprint.result import MemoryReport as MemoryReport
    from ms_tune.job import Job as Job
    from ms_tune.job import load_job as load_job
    from ms_tune.lint.result import LintReport as LintReport
    from ms_tune.lint.result import LintRequest as LintRequest
    from ms_tune.lint.runner import lint_files as lint_files
    from ms_tune.lint.settings import Selection as Selection
    from ms_tune.memory.plan import PlanRequest as PlanRequest
    from ms_tune.memory.what_if import WhatIfRequest as WhatIfRequest
    from ms_tune.metrics.result import MetricsRequest as MetricsRequest
    from ms_tune.metrics.run import measure_runs as measure_runs
    from ms_tune.normalize.run import normalize_recompute as normalize_recompute
    from ms_tune.planning.fit import FitReport as FitReport
    from ms_tune.planning.fit import FitRequest as FitRequest
    from ms_tune.profile.run import analyse_profiles as analyse_profiles
    from ms_tune.verdict.outcome import Fit as Fit
    from ms_tune.verdict.outcome import Verdict as Verdict
    from ms_tune.workflows.check.config import OverviewRequest as OverviewRequest
    from ms_tune.workflows.check.run import check_job as check_job
    from ms_tune.workflows.migrate.run import migrate_config as migrate_config

_MODULES = {
    "CommandRequest": "dryrun.request",
    "CommandResult": "dryrun.command_result",
    "ConfigFit": "fit.result",
    "ConfigFitRequest": "fit.result",
    "Diagnostic": "diagnostics",
    "Dialect": "enums",
    "DryrunRequest": "dryrun.request",
    "DryrunResult": "dryrun.result",
    "Fit": "verdict.outcome",
    "FitReport": "planning.fit",
    "FitRequest": "planning.fit",
    "Job": "job",
    "LayerPlan": "dialects",
    "LayerSpec": "dialects",
    "LintReport": "lint.result",
    "LintRequest": "lint.result",
    "MemoryReport": "footprint.result",
    "MemoryRequest": "footprint.report",
    "MetricsRequest": "metrics.result",
    "MsTuneError": "errors",
    "OverviewRequest": "workflows.check.config",
    "PlanRequest": "memory.plan",
    "RecomputeMode": "enums",
    "Selection": "lint.settings",
    "Setting": "dryrun.request",
    "Severity": "diagnostics",
    "SweepResult": "dryrun.result",
    "Verdict": "verdict.outcome",
    "WhatIfRequest": "memory.what_if",
    "analyse_memory": "footprint.report",
    "analyse_profiles": "profile.run",
    "check_job": "workflows.check.run",
    "dryrun_job": "dryrun.run",
    "fit_config": "fit.run",
    "lint_files": "lint.runner",
    "load_job": "job",
    "measure_runs": "metrics.run",
    "migrate_config": "workflows.migrate.run",
    "normalize_recompute": "normalize.run",
}

# Subpackages that cannot be imported without an extra, and the name of that extra.
_EXTRAS = {"fit": "fit", "footprint": "report", "memory": "report", "planning": "fit"}

__all__ = ["__version__", *_MODULES]  # noqa: PLE0604 - texts, too


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(name)
    try:
        return getattr(import_module(f"ms_tune.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(_MODULES[name].partition(".")[0])
        if extra is None or error.name is None:
            raise
        from ms_tune.extras import refuse  # noqa: PLC0415 - start-up time

        refuse(f"ms_tune.{name}", extra, error.name)


def __dir__() -> list[str]:
    return __all__
