"""A config's lists of layers in their explicit form, written into its text.

What the explicit form of a list is, is for the dialect to say: :mod:`ms_tune.dialects.mindformers.expand`,
:mod:`~ms_tune.dialects.mindspeed_ms.expand` and :mod:`~ms_tune.dialects.mindformers_pynative.expand`. Only the values themselves are
replaced, one item at a time where the form is explicit already. What comes out is proved before it is written: it must
read as the same config but for those values, give the same plan, and be its own explicit form.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ms_tune.dialects import dialect_module
from ms_tune.errors import ConfigError, UsageError
from ms_tune.job.includes import followed
from ms_tune.source.edit import ChangeKind, EditRefusedError, ValueChange, same_data
from ms_tune.source.edit_values import loses_comments, refuse_shared, with_values
from ms_tune.source.yaml import parse_source
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.enums import Dialect
    from ms_tune.source.yaml import SourceFile, Values

    # What each layer of a config does, and the explicit form of every list that has another one.
    Reading: TypeAlias = tuple[LayerPlan, Values]


@dataclass(frozen=True, slots=True)
class Explicit:
    """A config with its lists in explicit form."""

    text: str  # the whole text
    count: int  # how many values were changed
    left: tuple[KeyPath, ...] = ()  # the values that stay as they are, because there are comments inside them
    # Explicit values of what stands in a `base_config` and stays as it is, since other configs may build on that file:
    # where they would have to be written, the file and its line.
    elsewhere: tuple[tuple[KeyPath, object, Path, int], ...] = ()


def explicit(source: SourceFile, dialect: Dialect, version: str | None = None, layers: int | None = None) -> Explicit:
    """The config with every list of layers in its explicit form.

    Args:
        source: The config.
        dialect: Its dialect.
        version: The framework's release, as the dialect's ``normalize_source`` takes it.
        layers: The number of layers, for a config that does not tell it.

    Raises:
        ConfigError: A value stands where it cannot be changed alone.
        UsageError: The framework does not get through the config, or the result would not mean the same.
    """
    source = followed(source)
    module = dialect_module(dialect.value, "expand")
    read: Callable[[SourceFile], Reading] = partial(module.read, version=version, layers=layers)
    plan, wanted = read(source)
    if plan.failure is not None or plan.formative is None:
        raise UsageError(msg("normalize.not-written", framework=msg(f"normalize.framework.{dialect.value}")))
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
        _prove(source, text, (plan, here), read, {*left, *(path for path, *_ in elsewhere)})
    return Explicit(text, len(here), left, elsewhere)


def _prove(
    source: SourceFile,
    text: str,
    reading: Reading,
    read: Callable[[SourceFile], Reading],
    left: Collection[KeyPath],
) -> None:
    """The text must hold the wanted values and nothing else that is new, and its plan must be the old one.

    Args:
        source: The config.
        text: Its text with the wanted values.
        reading: The plan of the config, and the values.
        read: Reads a config.
        left: Values that are not explicit and stay as they are.

    Raises:
        ConfigError: A changed value shows elsewhere, too.
        UsageError: The result would not mean the same.
    """
    plan, wanted = reading
    try:
        result = followed(parse_source(text, source.path).but(beside=source.beside))
        expected: object = source.data
        for path, value in wanted.items():
            expected = ValueChange(ChangeKind.SET_VALUE, path, value).applied(expected)
    except (ConfigError, EditRefusedError) as error:
        raise UsageError(msg("normalize.write-unproven")) from error
    if not same_data(result.data, expected):
        refuse_shared(source, next(iter(wanted)))
    again, more = read(result)
    if more.keys() - set(left) or (again.placement, again.layers) != (plan.placement, plan.layers):
        raise UsageError(msg("normalize.write-unproven"))
