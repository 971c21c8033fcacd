"""Check with the plan whether the framework accepts the config, and which mistakes it accepts silently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ms_tune.diagnostics import Diagnostic, KeyPath, Severity
from ms_tune.dialects import FrameworkStop, PlanIssue
from ms_tune.dialects.check_context import CheckContext, Violation

# Where the patterns of each purpose are set in the config.
_PATTERNS: dict[str, KeyPath] = {
    "select_module": ("recompute", "select_module"),
    "exclude_op": ("recompute", "exclude_op"),
    "comm_select_module": ("recompute_comm", "select_module"),
    "op_swap": ("swap", "op_swap"),
}


def passes(context: CheckContext) -> bool:
    """Return whether the framework certainly accepts the layers; False if the config is incomplete."""
    plan = context.plan
    return plan is not None and plan.failure is None


def accepted(context: CheckContext) -> Iterator[Violation]:
    """Report settings that the framework accepts although they are probably mistakes.

    The option ``traps`` maps IDs of the plan's problems to the key paths to point at.
    The problem's ID is also the name of the message; ``default`` if the check has only one.
    """
    plan, traps = context.plan, context.options["traps"]
    if plan is None or plan.failure is not None or not isinstance(traps, dict):
        return
    for problem in plan.problems:
        if problem.id in traps and (problem.severity is not Severity.INFO or problem.id != PlanIssue.CELL_UNMATCHED):
            path = _place(context, problem, tuple(str(traps[problem.id]).split(".")))
            message = "default" if len(traps) == 1 or problem.id == PlanIssue.NO_MATCH else problem.id
            yield Violation(path, message, {name: str(value) for name, value in problem.message.params.items()})


def _place(context: CheckContext, problem: Diagnostic, usual: KeyPath) -> KeyPath:
    params = problem.message.params
    key, name = str(params.get("key", "")), str(params.get("pattern", params.get("name", "")))
    within = _PATTERNS.get(key, usual)
    value = context.source.get(within)
    if isinstance(value, dict) and name in value:
        return (*within, name)
    if isinstance(value, dict) and key in value:
        return (*within, key)
    for index, entry in enumerate(value if isinstance(value, list) else ()):
        if name and isinstance(entry, dict) and entry.get("op_name") == name:
            return (*within, index)
    return within


def report_refusals(rule: str, refused: Iterable[FrameworkStop]) -> Iterator[Violation]:
    """Report the refusals that belong to one check, including those that appear only after others are fixed."""
    for one in refused:
        if one.rule == rule:
            yield Violation(one.path, one.message, one.params, at_key=one.message == "pattern")


def refused_at_last(context: CheckContext) -> Iterator[Violation]:
    """Report that the framework raises while loading the config or setting layers, if no other check found an error."""
    plan = context.plan
    # The plan is missing if the config is incomplete or uses something unsupported.
    if plan is None or plan.failure is None or context.refused():
        return
    failure = plan.failure
    error = f"{failure.exception}: {failure.text}" if failure.text else failure.exception
    section = str(context.options["section"])
    yield Violation((section,) if section in context.source.data else (), params={"error": error})
