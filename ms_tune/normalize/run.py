"""What each layer of a config does, whatever its dialect, and the config with its lists of layers in explicit form."""

from __future__ import annotations

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.enums import ChangeKind
from ms_tune.errors import ConfigError, UsageError
from ms_tune.job import Job
from ms_tune.records import Record
from ms_tune.source.edit import EditRefusedError, ValueChange, same_data
from ms_tune.source.edit_values import loses_comments, refuse_shared, with_values
from ms_tune.source.yaml import parse_source
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path
    from typing import TypeAlias

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects import LayerPlan
    from ms_tune.source.yaml import Values

    Reading: TypeAlias = tuple[LayerPlan, Values]


def normalize_recompute(job: Job) -> LayerPlan:
    """What every layer of a job recomputes and swaps, as its framework decides it, and what its author should know of that.

    Args:
        job: The job of a config.

    Raises:
        ConfigError: A setting is missing or cannot be, or the config is of no dialect that is served.
        UnsupportedError: It needs something that is not served.
        UsageError: The release is not served.

    Example::

        plan = ms_tune.normalize_recompute(ms_tune.load_job("train.yaml", framework_version="1.9"))
        in_full = [layer.layer for layer in plan.layers if layer.recompute is RecomputeMode.FULL]
    """
    plan = job.plan
    if plan.failure is None and not job.source.duplicates:
        return plan
    problems = list(plan.problems)
    if plan.failure is not None and job.remedy:
        from ms_tune.dialects.remedy import describe  # noqa: PLC0415 - only for what is wrong

        problems[0] = problems[0]._replace(help=describe(job.remedy))
    for number, one in enumerate(job.source.duplicates, 1 if plan.failure else 0):
        key, lines = ".".join(map(str, one.path)), {"first": one.first.line, "again": one.again.line}
        message = msg("normalize.duplicate-key", key=key, **lines)
        problems.insert(number, Diagnostic("duplicate-key", Severity.WARNING, message))
    return plan._replace(problems=tuple(problems))


class ExpandedConfig(Record):
    """A config with its lists in explicit form."""

    text: str  # the whole text
    change_count: int  # how many values were changed
    left: tuple[KeyPath, ...] = ()  # the values that stay as they are, because there are comments inside them
    # Explicit values of what stands in a `base_config` and stays as it is, since other configs may build on that file:
    # where they would have to be written, the file and its line.
    elsewhere: tuple[tuple[KeyPath, object, Path, int], ...] = ()


def expand_lists(job: Job) -> ExpandedConfig:
    """The config with every list of layers in its explicit form.

    Args:
        job: The config's job.

    Raises:
        ConfigError: A value stands where it cannot be changed alone.
        UsageError: The framework does not get through the config, or the result would not mean the same.
    """
    source = job.source
    read: Callable[[Job], Reading] = job.part("write").explicit_lists
    plan, wanted = read(job)
    if plan.failure is not None or plan.formative is None:
        raise UsageError(msg("normalize.not-written", framework=msg(f"normalize.framework.{job.dialect.value}")))
    elsewhere = tuple(
        (path, value, file.path, file.nearest(path).value.line)
        for path, value in wanted.items()
        if (file := source.saying(path)) is not source
    )
    here = {path: value for path, value in wanted.items() if source.position(path) is not None}
    left = tuple(path for path, value in here.items() if loses_comments(source, path, value))
    here = {path: value for path, value in here.items() if path not in left}
    text = with_values(source, here)
    if here:
        _prove_same(job, text, (plan, here), read, {*left, *(path for path, *_ in elsewhere)})
    return ExpandedConfig(text, len(here), left, elsewhere)


def _prove_same(
    job: Job,
    text: str,
    reading: Reading,
    read: Callable[[Job], Reading],
    left: Collection[KeyPath],
) -> None:
    """The text must hold the wanted values and nothing else that is new but what is left, and its plan must be the old one."""
    plan, wanted = reading
    source = job.source
    try:
        again = Job(
            parse_source(text, source.path).but(beside=source.beside),
            dialect=job.dialect,
            version=job.version,
            layers=job.layers,
        )
        result = again.source
        expected: object = source.data
        for path, value in wanted.items():
            expected = ValueChange(ChangeKind.SET_VALUE, path, value).applied(expected)
    except (ConfigError, EditRefusedError) as error:
        raise UsageError(msg("normalize.write-unproven")) from error
    if not same_data(result.data, expected):
        refuse_shared(source, next(iter(wanted)))
    found, more = read(again)
    if more.keys() - set(left) or (found.placement, found.layers) != (plan.placement, plan.layers):
        raise UsageError(msg("normalize.write-unproven"))
