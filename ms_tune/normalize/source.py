"""What each layer of a config does, whatever its dialect."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.job.detect import recognise
from ms_tune.job.includes import followed
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.source.edit import ValueChange
    from ms_tune.source.yaml import SourceFile


def dialect_of(source: SourceFile) -> Dialect:
    """The dialect of a config.

    Raises:
        ConfigError: It is of none that is served.
    """
    found = recognise(source.data)
    if found.dialect is None:
        reason = found.why_not
        message = msg("normalize.not-ours", reason=reason) if reason else msg("normalize.no-dialect")
        raise ConfigError(message, msg("normalize.no-dialect.hint"), path=source.path)
    return found.dialect


def normalize_source(
    source: SourceFile, version: str | None = None, layers: int | None = None, *, hints: bool = True
) -> LayerPlan:
    """The plan of a config, and which keys of it stand twice; the dialects' own modules say what they raise.

    Args:
        source: The config.
        version: The framework's release; None for the default.
        layers: The number of layers, for a config that does not tell it.
        hints: Whether to look for what would pass where the framework refuses the config.
    """
    source = followed(source)
    plan = _plan(source, version, layers)
    if source.read_from:
        plan = plan._replace(read_from=tuple(map(str, source.read_from)))
    if plan.failure is not None and hints:
        changes = remedy_of(source, plan, layers)
        if changes:
            from ms_tune.normalize.suggest import describe  # noqa: PLC0415 - start-up time

            first = plan.problems[0]._replace(help=describe(changes))
            plan = plan._replace(problems=(first, *plan.problems[1:]))
    if not source.duplicates:
        return plan
    twice = [
        Diagnostic(
            "duplicate-key",
            Severity.WARNING,
            msg(
                "normalize.duplicate-key", key=".".join(map(str, one.path)), first=one.first.line, again=one.again.line
            ),
        )
        for one in source.duplicates
    ]
    at = 1 if plan.failure else 0
    return plan._replace(problems=(*plan.problems[:at], *twice, *plan.problems[at:]))


def remedy_of(source: SourceFile, plan: LayerPlan, layers: int | None = None) -> tuple[ValueChange, ...]:
    """The changes with which the framework goes on, proved by its own rules; none if there are none to be proposed.

    Args:
        source: A config that the framework refuses.
        plan: Its plan.
        layers: The number of layers, for a config that does not tell it.
    """
    from ms_tune.normalize.suggest import find_remedy  # noqa: PLC0415 - start-up time

    return find_remedy(source, plan, partial(_plan, version=plan.framework_version, layers=layers), layers)


def _plan(source: SourceFile, version: str | None, layers: int | None) -> LayerPlan:
    dialect = dialect_of(source)
    if dialect is Dialect.MINDSPEED_MS:
        from ms_tune.dialects.mindspeed_ms import read as mindspeed_ms  # noqa: PLC0415 - start-up time: one dialect is needed, not all

        return mindspeed_ms.normalize_source(source, version)
    if dialect is Dialect.MINDFORMERS_PYNATIVE:
        from ms_tune.dialects.mindformers_pynative import read as pynative  # noqa: PLC0415 - as above

        return pynative.normalize_source(source, version, layers)
    from ms_tune.dialects.mindformers import read  # noqa: PLC0415 - as above

    return read.normalize_source(source, version, layers)
