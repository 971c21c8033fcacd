"""A plan as one JSON object (``ms-tune normalize-recompute --json``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.text import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.dialects import LayerPlan, LayerSpec
    from ms_tune.normalize.script import ProgramPlan
    from ms_tune.text import Language

_VERSION = 1


def plan_json(plan: LayerPlan, layers: Sequence[LayerSpec], language: Language) -> dict[str, object]:
    """The plan's JSON form; its keys are documented in ``docs/normalize-recompute.md``.

    Args:
        plan: The plan.
        layers: Those of its layers that were asked for.
        language: The language of the messages.
    """
    return {
        "version": _VERSION,
        "dialect": plan.dialect,
        "framework_version": plan.framework_version,
        "placement": [list(row) for row in plan.placement] if plan.placement is not None else None,
        "formative": dict(plan.formative) if plan.formative is not None else None,
        "layers": [_layer(layer) for layer in layers],
        "problems": problems_json(plan.problems, language),
        "read_from": list(plan.read_from),
    }


def problems_json(problems: Sequence[Diagnostic], language: Language) -> list[dict[str, str | None]]:
    """Problems, in the language of the user."""
    return [
        {
            "id": problem.id,
            "severity": problem.severity.value,
            "message": render(problem.message, language),
            "hint": render(problem.help, language) if problem.help is not None else None,
        }
        for problem in problems
    ]


def programs_json(programs: Sequence[ProgramPlan], language: Language) -> dict[str, object]:
    """The JSON form of the programs that a script starts: each a plan, or what it depends on."""
    jobs = [
        {
            "program": one.program,
            "line": one.line,
            "not_evaluable": None if one.plan else {"argument": one.argument, "unknown": one.unknown},
            "plan": plan_json(one.plan, one.plan.layers, language) if one.plan else None,
        }
        for one in programs
    ]
    return {"version": _VERSION, "jobs": jobs}


def _layer(layer: LayerSpec) -> dict[str, object]:
    kind = {"kind": layer.kind.value} if layer.kind else {}
    return {
        **kind,
        "layer": layer.layer,
        "stage": layer.stage,
        "chunk": layer.chunk,
        "recompute": layer.recompute.value,
        "select_patterns": list(layer.select_patterns),
        "comm_patterns": list(layer.comm_patterns),
        "select_exclude_patterns": list(layer.select_excludes),
        "comm_exclude_patterns": list(layer.comm_excludes),
        "overridden_patterns": list(layer.overridden),
        "swap": [{"target": swap.target, "prefetch": swap.prefetch} for swap in layer.swap],
    }
