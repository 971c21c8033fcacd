"""ms-tune: is a MindSpore large-model training config right, and does it fit, before any NPU is used.

``from ms_tune import api`` is for Python programs; what its functions take and return can be imported from here. Names
are looked up when they are used: the command line, which imports this package first, needs few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ms_tune.version import __version__

if TYPE_CHECKING:
    from ms_tune import api
    from ms_tune.diagnostics import Diagnostic, Severity
    from ms_tune.dialects.layer_plan import LayerPlan, LayerSpec
    from ms_tune.dryrun.command_result import CommandResult
    from ms_tune.dryrun.request import CommandRequest, DryrunRequest, Setting
    from ms_tune.dryrun.result import DryrunResult, SweepResult
    from ms_tune.dryrun.run import dryrun_job
    from ms_tune.enums import Dialect, RecomputeMode
    from ms_tune.errors import MsTuneError
    from ms_tune.fit.result import ConfigFit, ConfigFitRequest
    from ms_tune.fit.run import fit_config
    from ms_tune.footprint.report import analyse_memory
    from ms_tune.footprint.request import MemoryRequest
    from ms_tune.footprint.result import MemoryReport
    from ms_tune.job.job import Job, load_job
    from ms_tune.lint.result import LintReport, LintRequest
    from ms_tune.lint.settings import Selection
    from ms_tune.memory.request import PlanRequest, WhatIfRequest
    from ms_tune.metrics.result import MetricsRequest
    from ms_tune.metrics.run import measure_runs
    from ms_tune.normalize.run import normalize_recompute
    from ms_tune.planning.fit import FitReport
    from ms_tune.planning.request import FitRequest
    from ms_tune.profile.run import analyse_profiles
    from ms_tune.verdict.outcome import Fit, Verdict
    from ms_tune.workflows.migrate.run import migrate_config

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
    "FitRequest": "planning.request",
    "Job": "job.job",
    "LayerPlan": "dialects.layer_plan",
    "LayerSpec": "dialects.layer_plan",
    "LintReport": "lint.result",
    "LintRequest": "lint.result",
    "MemoryReport": "footprint.result",
    "MemoryRequest": "footprint.request",
    "MetricsRequest": "metrics.result",
    "MsTuneError": "errors",
    "PlanRequest": "memory.request",
    "RecomputeMode": "enums",
    "Selection": "lint.settings",
    "Setting": "dryrun.request",
    "Severity": "diagnostics",
    "SweepResult": "dryrun.result",
    "Verdict": "verdict.outcome",
    "WhatIfRequest": "memory.request",
    "analyse_memory": "footprint.report",
    "analyse_profiles": "profile.run",
    "dryrun_job": "dryrun.run",
    "fit_config": "fit.run",
    "load_job": "job.job",
    "measure_runs": "metrics.run",
    "migrate_config": "workflows.migrate.run",
    "normalize_recompute": "normalize.run",
}

_EXTRAS = {
    "fit": "fit",
    "footprint": "report",
    "memory": "report",
    "planning": "fit",
}  # that rooms cannot be imported without

__all__ = [
    "CommandRequest",
    "CommandResult",
    "ConfigFit",
    "ConfigFitRequest",
    "Diagnostic",
    "Dialect",
    "DryrunRequest",
    "DryrunResult",
    "Fit",
    "FitReport",
    "FitRequest",
    "Job",
    "LayerPlan",
    "LayerSpec",
    "LintReport",
    "LintRequest",
    "MemoryReport",
    "MemoryRequest",
    "MetricsRequest",
    "MsTuneError",
    "PlanRequest",
    "RecomputeMode",
    "Selection",
    "Setting",
    "Severity",
    "SweepResult",
    "Verdict",
    "WhatIfRequest",
    "__version__",
    "analyse_memory",
    "analyse_profiles",
    "api",
    "dryrun_job",
    "fit_config",
    "load_job",
    "measure_runs",
    "migrate_config",
    "normalize_recompute",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        try:
            return getattr(import_module(f"ms_tune.{_MODULES[name]}"), name)
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get(_MODULES[name].partition(".")[0])
            if extra is None or error.name is None:
                raise
            from ms_tune.extras import refuse  # noqa: PLC0415 - start-up time

            refuse(f"ms_tune.{name}", extra, error.name)
    if name == "api":
        return import_module("ms_tune.api")
    raise AttributeError(name)


def __dir__() -> list[str]:
    return __all__
