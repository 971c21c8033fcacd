"""The result of ``ms-tune memory what-if`` as JSON; sizes are bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.report.verdict import verdict_json
from ms_tune.report.what_if_text import FINDING, FINDING_ID, finding_text
from ms_tune.verdict.outcome import Fit

if TYPE_CHECKING:
    from ms_tune.memory.what_if import WhatIfReport
    from ms_tune.pools.scenarios import Scenario
    from ms_tune.pools.settings import Inferred
    from ms_tune.pools.what_if import ReplayOutcome, WhatIf
    from ms_tune.report.console import Console
    from ms_tune.verdict.outcome import Verdict


def report_json(report: WhatIfReport, console: Console) -> dict[str, object]:
    """The object that the command prints."""
    result = report.result
    inferred, wrong = result.inferred, result.inferred.mismatches
    return {
        "version": 1,
        "rank": report.rank,
        "pool": result.pool,
        "rows": report.rows,
        "limit_by": report.limit_by,
        **verdict_json(report.verdict, console),
        "recorded": _outcome(result.recorded, report),
        "settings": [{"setting": outcome.name, **_outcome(outcome, report)} for outcome in result.outcomes[1:]],
        "inferred_settings": _settings(inferred),
        "mismatches": {"address": wrong.address, "used": wrong.used, "actual": wrong.actual},
        "first_difference": inferred.first_difference,
        "best": _best(result.best, report),
        "best_without_vmm": _best(result.best_without_vmm, report),
        "causes": _causes(report),
        "scenarios": [
            _scenario(scenario) | _verdict(verdict)
            for scenario, verdict in zip(report.scenarios, report.scenario_verdicts, strict=True)
        ],
        "findings": [_finding(report, console)] if result.wasteful else [],
        "seconds": round(report.seconds, 3),
    }


def _outcome(outcome: ReplayOutcome, report: WhatIfReport) -> dict[str, object]:
    return {
        "used_bytes": outcome.used,
        "actual_bytes": outcome.actual,
        "reserved_bytes": outcome.reserved,
        **_verdict(report.verdicts[report.result.outcomes.index(outcome)]),
    }


def _verdict(verdict: Verdict | None) -> dict[str, object]:
    """What is said about one replay; nulls where there is no verdict."""
    found = verdict.outcome if verdict is not None else None
    return {"fits": None if found is None else found is Fit.FITS, "verdict": None if found is None else found.value}


def _settings(inferred: Inferred) -> dict[str, object]:
    settings = inferred.settings
    return {
        "set_memory": settings.init is not None,
        "init_size_bytes": settings.init,
        "increase_size_bytes": settings.increase,
        "max_size_bytes": settings.total,
        "small_pool": settings.small_pool,
        "vmm": settings.vmm.value == "on",
        "older_pool": inferred.older,
        "empty_cache_calls": len(inferred.work.releases),
        "made_no_difference": list(inferred.open),
    }


def _best(outcome: ReplayOutcome | None, report: WhatIfReport) -> dict[str, object] | None:
    if outcome is None:
        return None
    lines = outcome.lines
    places = {"script": lines.script, "config": lines.config, "environment": lines.environment}
    return {"setting": outcome.name, **_outcome(outcome, report), **places}


def _scenario(scenario: Scenario) -> dict[str, object]:
    change = scenario.change
    return {
        "scenario": change.name,
        "subject": change.subject,
        "parts": change.parts,
        "changed_rows": change.changed,
        "used_bytes": scenario.used,
        "actual_bytes": scenario.actual,
        "reserved_bytes": scenario.reserved,
    }


def _finding(report: WhatIfReport, console: Console) -> dict[str, object]:
    result: WhatIf = report.result
    return {
        "id": FINDING_ID,
        "name": FINDING,
        "severity": "warning",
        "rank": report.rank,
        "bytes": result.recorded.reserved - result.recorded.used,
        "message": finding_text(result, console),
        "help": console.text("allocator.finding.waste.help"),
    }


def _causes(report: WhatIfReport) -> dict[str, object]:
    causes = report.result.causes
    return {
        "spilled_bytes": causes.spilled,
        "untouched_bytes": causes.untouched,
        "idle_at_peak_bytes": causes.idle_at_peak,
        "growths": [
            {
                "row": growth.request,
                "name": None if growth.request is None else report.names[growth.request],
                "part": growth.part,
                "unit_bytes": growth.unit_bytes,
                "reserved_bytes": growth.reserved_bytes,
                "request_bytes": growth.request_bytes,
                "largest_hole_bytes": growth.largest_hole,
                "free_bytes": growth.free_bytes,
            }
            for growth in causes.growths
        ],
        "units": [
            {
                "part": pin.unit.part,
                "bytes": pin.unit.size,
                "touched_bytes": pin.touched,
                "live_at_peak_bytes": pin.live,
                "held_by": None if pin.request is None else report.names[pin.request],
            }
            for pin in causes.pins
        ],
    }
