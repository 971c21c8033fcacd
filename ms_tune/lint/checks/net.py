"""What stops a run although no other check says so: the frameworks' way from a config to its layers, gone to the end.

:mod:`ms_tune.layers` goes it step by step, as the frameworks do. The other checks tell most of what they refuse in
words of their own, several things at once; here the rest is told, in the framework's words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.config.dialects.recognise import Dialect
from ms_tune.errors import MsTuneError
from ms_tune.lint.context import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.layers.plans import NormalizedPlan
    from ms_tune.lint.context import Context

_DYNAMIC = ("2.0", "2.1")  # the releases whose dynamic graph is served


def refused(context: Context) -> Iterator[Violation]:
    """The framework raises while it loads the config or sets its layers, and no other check has an error to tell."""
    try:
        failure = _plan(context).failure
    except MsTuneError:
        return  # the config does not tell all that is needed, or needs something that is not served
    if failure is None or _told(context):
        return
    error = f"{failure.exception}: {failure.text}" if failure.text else failure.exception
    section = str(context.options["section"])
    yield Violation((section,) if section in context.source.data else (), params={"error": error})


def passes(context: Context) -> bool:
    """Whether the framework surely gets through to the layers; not if the config does not tell all that is needed."""
    try:
        return _plan(context).failure is None
    except MsTuneError:
        return False


def _plan(context: Context) -> NormalizedPlan:
    if context.dialect is Dialect.MINDSPEED_MS:
        from ms_tune.config.dialects import mindspeed_ms_layers  # noqa: PLC0415 - only for such configs

        return mindspeed_ms_layers.normalize_source(context.source)
    from ms_tune.config.dialects import pynative  # noqa: PLC0415 - as above

    release = next((one for one in _DYNAMIC if context.version.startswith(one)), _DYNAMIC[-1])
    return pynative.normalize_source(context.source, release)


def _told(context: Context) -> bool:
    """Whether any other check finds an error."""
    from ms_tune.lint.checklist import Function, built_in  # noqa: PLC0415 - the engine calls the checks
    from ms_tune.lint.engine import lint  # noqa: PLC0415 - as above
    from ms_tune.lint.finding import Severity  # noqa: PLC0415 - as above

    others = [
        check
        for check in built_in(context.dialect)
        if check.severity is Severity.ERROR and not (isinstance(check.test, Function) and check.test.module == "net")
    ]
    return bool(lint(context.source, context.dialect, others, context.version or None))
