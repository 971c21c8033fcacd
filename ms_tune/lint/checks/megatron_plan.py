"""Checks of what a program's arguments make of its layers: :mod:`ms_tune.layers.megatron` works it out as the frameworks do.

They are made for the releases whose rules are known; for others :mod:`ms_tune.lint.checks.megatron_sizes` calculates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.megatron.inputs import ARGUMENTS
from ms_tune.dialects.megatron.plan import normalize_megatron
from ms_tune.dialects.megatron.write import canonical, remedy_changes
from ms_tune.lint.checks import megatron_sizes
from ms_tune.lint.checks.megatron import command_in, plan_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.dialects.megatron.arguments import ProgramArguments

# Where a trap is shown: the first of these arguments that is written.
_TRAPS = {
    "full-nothing": ("--recompute-num-layers", "--recompute-granularity"),
    "swap-instead": ("--recompute-granularity",),
    "method-alone": ("--recompute-method",),
    "modules-ignored": ("--recompute-modules",),
    "by-rank-ignored": ("--enable-recompute-layers-per-pp-rank",),
    "frequency-ignored": ("--moe-layer-freq",),
    "looked-up": ("--noop-layers", "--first-k-dense-replace"),
    "numbered": ("--recompute-norm", "--recompute-activation-function"),
    "noop-missed": ("--noop-layers",),
    "layers-built": ("--pipeline-num-transformer-layers", "--num-layer-list", "--num-layers"),
}
_NUMBERS = ("number", "activation_layers", "norm_layers")


def refused(context: CheckContext) -> Iterator[Violation]:
    """The frameworks refuse the arguments about layers, for a reason that no other check tells."""
    found = plan_in(context)
    if found is None or found[1].failure is None:
        return
    inputs, plan = found
    failure = plan.failure
    error = f"{failure.exception}: {failure.text}" if failure and failure.text else str(failure and failure.exception)
    if any(True for check in (megatron_sizes.layers, megatron_sizes.recompute) for _ in check(context)):
        return
    changes = remedy_changes(inputs, normalize_megatron) or {}
    _, command = command_in(context)
    names = [*(ARGUMENTS[field] for field in changes), "--num-layers"]
    yield _at(command, names, "default", {"error": error})


def trap(context: CheckContext) -> Iterator[Violation]:
    """Something that the frameworks take although its author hardly meant it.

    The option ``ids`` names which, and ``default`` which of them has the message of that name.
    """
    found = plan_in(context)
    if found is None:
        return
    _, command = command_in(context)
    for problem in found[1].problems:
        if problem.id in context.names("ids"):
            message = "default" if problem.id == context.options["default"] else problem.id
            yield from _of_trap(command, problem, message)


def _of_trap(command: ProgramArguments, problem: Diagnostic, message: str) -> Iterator[Violation]:
    params = {name: str(value) for name, value in problem.message.params.items() if name != "name"}
    names = _TRAPS.get(problem.id) or (f"--{problem.message.params['name']}-num-layers",)
    if command.open and not any(one.name in names for one in command.given):
        return
    yield _at(command, names, message, params)


def beyond(context: CheckContext) -> Iterator[Violation]:
    """Numbers of layers that reach further than there are layers."""
    found = plan_in(context)
    if found is None or not found[1].layers:
        return
    _, command = command_in(context)
    inputs = found[0]
    changes = canonical(inputs)
    for field in _NUMBERS:
        reached = changes.get(field)
        if reached:
            yield _at(command, (ARGUMENTS[field],), "default", {"number": getattr(inputs, field), "reached": reached})


def _at(command: ProgramArguments, names: Sequence[str], message: str, params: Mapping[str, object]) -> Violation:
    """A violation at the first of some arguments that is written."""
    given = next((one for name in names for one in reversed(command.given) if one.name == name), None)
    return Violation((given.name,) if given else (), message, params, at_key=given is not None and not given.values)
