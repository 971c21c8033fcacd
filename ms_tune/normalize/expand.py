"""A config with its lists of layers in explicit form."""

from __future__ import annotations

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
