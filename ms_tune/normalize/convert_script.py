"""What a launch script's programs do with their layers, in another dialect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Severity
from ms_tune.dialects.megatron.write import without_idle
from ms_tune.enums import Dialect, LayerKind
from ms_tune.normalize.convert import convert_named, megatron_side
from ms_tune.normalize.convert_layers import Converted
from ms_tune.normalize.read_back import note
from ms_tune.normalize.script import normalize_script

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.normalize.read_back import TargetDialect
    from ms_tune.normalize.script import ProgramPlan

# What stands for a program without experts, and with, where its layers' counterparts are looked up.
_DENSE, _SPARSE = "megatron", "megatron-experts"


@dataclass(frozen=True, slots=True)
class ConvertedProgram:
    """One program in another dialect."""

    program: ProgramPlan  # the program, with what its layers do
    settings: Converted | None  # the settings that do the same; None if what its layers do is not known


def convert_script(
    path: Path, target: TargetDialect, text: str | None = None, version: str | None = None
) -> tuple[ConvertedProgram, ...]:
    """The settings that do in another dialect what the programs of a script do.

    Layers that do nothing (``--noop-layers``) are no layers anywhere else: the others are counted without them.

    Args:
        path: The script.
        target: The other dialect and its release.
        text: The script's text, if that is known.
        version: The release of MindSpeed-LLM; None for the default.

    Raises:
        ConfigError, UnsupportedError: As :func:`ms_tune.normalize.script.normalize_script` says.
    """
    programs = normalize_script(path, text, version)
    return tuple(ConvertedProgram(one, _converted(one.plan, target) if one.plan else None) for one in programs)


def _converted(plan: LayerPlan, target: TargetDialect) -> Converted:
    problems = list(plan.problems)
    if plan.failure is not None:
        note(problems, "no-plan", Severity.ERROR)
        return Converted({}, tuple(problems), target.release)
    idle = sum(layer.kind is LayerKind.NOOP for layer in plan.layers)
    plan = without_idle(plan)
    if idle and target.dialect is not Dialect.MEGATRON:
        note(problems, "idle", Severity.INFO, count=idle)
    experts = [layer.layer for layer in plan.layers if layer.kind is LayerKind.EXPERTS]
    ahead = sum(layer.kind is LayerKind.PREDICTION for layer in plan.layers)
    here = megatron_side(_SPARSE if experts else _DENSE, plan.layers, experts, ahead)
    return convert_named(plan._replace(problems=()), here, target, problems)
