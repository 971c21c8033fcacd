"""A recompute plan as one JSON object (``ms-tune normalize-recompute --json``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.texts import render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ms_tune.layers import Formative, LayerPlan, RecomputePlan
    from ms_tune.texts import Language

_VERSION = 1


def plan_json(plan: RecomputePlan, dialect: str, versions: str, language: Language) -> dict[str, object]:
    """The plan's JSON form; its keys are documented in ``docs/normalize-recompute.md``."""
    return {
        "version": _VERSION,
        "dialect": dialect,
        "framework_version": versions,
        "placement": _rows(plan.placement.counts) if plan.placement else None,
        "formative": _formative(plan.formative) if plan.formative else None,
        "layers": [_layer(layer) for layer in plan.layers],
        "problems": [
            {
                "id": problem.id,
                "severity": problem.severity.value,
                "message": render(problem.message, language),
            }
            for problem in plan.problems
        ],
    }


def _rows(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(row) for row in rows]


def _patterns(patterns: Mapping[object, Sequence[Sequence[int]]]) -> dict[str, list[list[int]]]:
    return {str(pattern): _rows(rows) for pattern, rows in patterns.items()}


def _formative(formative: Formative) -> dict[str, object]:
    return {
        "layer_recompute": _rows(formative.layer_recompute),
        "select_recompute": _patterns(formative.select_recompute),
        "select_comm_recompute": _patterns(formative.select_comm_recompute),
        "select_recompute_exclude": _patterns(formative.select_recompute_exclude),
        "select_comm_recompute_exclude": _patterns(formative.select_comm_recompute_exclude),
    }


def _layer(layer: LayerPlan) -> dict[str, object]:
    return {
        "layer": layer.layer,
        "stage": layer.stage,
        "chunk": layer.chunk,
        "recompute": layer.recompute.value,
        "select_patterns": list(layer.select_patterns),
        "comm_patterns": list(layer.comm_patterns),
        "select_exclude_patterns": list(layer.select_excludes),
        "comm_exclude_patterns": list(layer.comm_excludes),
    }
