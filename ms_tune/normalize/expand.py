"""Write a config's lists of layers in explicit form, to show which layers a short form means."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeAlias

from ms_tune.diagnostics import KeyPath
from ms_tune.dialects import LayerPlan
from ms_tune.enums import ChangeKind
from ms_tune.errors import ConfigError, UsageError
from ms_tune.job import Job
from ms_tune.records import Record
from ms_tune.source.edit import EditRefusedError, ValueChange, same_data
from ms_tune.source.edit_values import loses_comments, refuse_shared, with_values
from ms_tune.source.yaml import Values, parse_source
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    Reading: TypeAlias = tuple[LayerPlan, Values]


class ExpandedConfig(Record):
    """A config with its lists in explicit form."""

    text: str  # the whole text
    change_count: int  # the number of changed values
    left: tuple[KeyPath, ...] = ()  # values that stay unchanged because they contain comments
    # Explicit values for settings in a `base_config`, which stay unchanged because other configs may use that file: the
    # key path, the value, the file and its line.
    elsewhere: tuple[tuple[KeyPath, object, Path, int], ...] = ()


def expand_lists(job: Job) -> ExpandedConfig:
    """Return a config with every list of layers in explicit form."""
    source = job.source
    read: Callable[[Job], Reading] = job.part("write").explicit_lists
    plan, wanted = read(job)
    if plan.failure is not None or plan.formative is None:
        raise UsageError(msg("normalize.not-written", framework=msg(f"normalize.framework.{job.dialect.value}")))
    elsewhere = tuple(
        (path, value, file.path, file.nearest(path).value.line)
        for path, value in wanted.items()
        if (file := source.find_file(path)) is not source
    )
    here = {path: value for path, value in wanted.items() if source.position(path) is not None}
    left = tuple(path for path, value in here.items() if loses_comments(source, path, value))
    here = {path: value for path, value in here.items() if path not in left}
    text = with_values(source, here)
    if here:
        _prove_same(job, text, (plan, here), read, {*left, *(path for path, *_ in elsewhere)})
    return ExpandedConfig(text, len(here), left, elsewhere)


def _prove_same(
    job: Job, text: str, reading: Reading, read: Callable[[Job], Reading], left: Collection[KeyPath]
) -> None:
    """Raise an error unless the text has the wanted values (except ``left``), no other change, and the same plan."""
    plan, wanted = reading
    source = job.source
    try:
        again = Job(
            parse_source(text, source.path).replace(model_config=source.model_config),
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
