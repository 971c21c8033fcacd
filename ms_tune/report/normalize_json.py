"""What ``ms-tune normalize-recompute --json`` prints; ``docs/normalize-recompute.md`` describes every key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.encode import record_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.dialects import LayerPlan, LayerSpec
    from ms_tune.dialects.convert_layers import Converted
    from ms_tune.normalize.compare_log import Compared
    from ms_tune.normalize.script import ProgramPlan

_VERSION = 1


def plan_json(plan: LayerPlan, layers: Sequence[LayerSpec]) -> dict[str, object]:
    """A plan, with those of its layers that were asked for."""
    return {
        "version": _VERSION,
        **record_json(plan, "dialect", "framework_version", "placement", "formative", "read_from"),
        "layers": [_layer_json(layer) for layer in layers],
        "problems": _problems_json(plan.problems),
    }


def _problems_json(problems: Sequence[Diagnostic]) -> list[dict[str, object]]:
    return [record_json(problem, "id", "severity", "message") | {"hint": problem.help} for problem in problems]


def _layer_json(layer: LayerSpec) -> dict[str, object]:
    return {
        **({"kind": layer.kind} if layer.kind else {}),
        **record_json(layer, "layer", "stage", "chunk", "recompute", "select_patterns", "comm_patterns", "swap"),
        "select_exclude_patterns": layer.select_excludes,
        "comm_exclude_patterns": layer.comm_excludes,
        "overridden_patterns": layer.overridden,
    }


def programs_json(programs: Sequence[ProgramPlan]) -> dict[str, object]:
    """The programs that a script starts: each a plan, or what it depends on."""
    jobs = [
        {
            **record_json(one, "program", "line"),
            "not_evaluable": None if one.plan else record_json(one, "argument", "unknown"),
            "plan": plan_json(one.plan, one.plan.layers) if one.plan else None,
        }
        for one in programs
    ]
    return {"version": _VERSION, "jobs": jobs}


def conversion_json(dialect: str, converted: Converted) -> dict[str, object]:
    """The settings that a conversion gives; arguments are settings, too."""
    return {
        "version": _VERSION,
        "dialect": dialect.partition("@")[0],
        "framework_version": converted.release,
        "settings": converted.values,
        "problems": _problems_json(converted.problems),
    }


def comparison_json(result: Compared) -> dict[str, object]:
    """A plan beside the logs of a job."""
    return {
        "version": _VERSION,
        **record_json(result.plan, "dialect", "framework_version", "read_from"),
        **record_json(result, "verdict", "why"),
        "logs": [
            {
                "file": log.path,
                "rank": log.rank,
                "runs": len(log.runs),
                "line": min(log.runs[-1].numbers) if log.runs else None,
            }
            for log in result.logs
        ],
        "differences": [
            {"file": one.log, **record_json(one, "line", "what", "layer", "planned", "logged")}
            for one in result.differences
        ],
        "unreadable": [{"file": path, "line": line} for path, line in result.unreadable],
        "unknown": [{"what": what, "layer": layer} for what, layer in result.unknown],
        "layers": [
            record_json(state.plan, "layer", "stage", "chunk") | record_json(state, "agrees", "planned", "logged")
            for state in result.layers
        ],
    }
