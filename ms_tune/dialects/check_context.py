"""What a check that needs code is given, and what it answers."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.source.yaml import MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ms_tune.diagnostics import KeyPath, Location
    from ms_tune.enums import Dialect
    from ms_tune.facts.models import ModelConfig
    from ms_tune.job.job import Job
    from ms_tune.source.edit import ValueChange
    from ms_tune.source.yaml import SourceFile


class CheckContext(NamedTuple):
    """One config in front of one check.

    Args:
        job: The config's job; of the file alone, or with what it takes from its bases, as the check asks.
        options: What the checklist passes to the check's function.
        refused: Whether a check of any other module finds an error in this config.
    """

    job: Job
    options: Mapping[str, object]
    refused: Callable[[], bool] = bool  # no

    @property
    def source(self) -> SourceFile:
        """The config."""
        return self.job.source

    @property
    def dialect(self) -> Dialect:
        """Its dialect."""
        return self.job.dialect

    @property
    def version(self) -> str:
        """The release of the framework that is checked for."""
        return self.job.release.version

    @property
    def model(self) -> ModelConfig:
        """The model, with what the framework's class makes of its settings, left out or not."""
        return self.job.model

    def get(self, dotted: str, default: object = None) -> object:
        """The value at ``a.b.c``; a null counts as missing, as it does for the frameworks."""
        value = self.source.get(tuple(dotted.split(".")), MISSING)
        return default if value is MISSING or value is None else value

    def integer(self, dotted: str, default: int | None = None) -> int | None:
        """The whole number at ``a.b.c``; the default if there is none or it is something else."""
        value = self.get(dotted)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def mapping(self, dotted: str) -> Mapping[object, object]:
        """The mapping at ``a.b.c``, or an empty one."""
        value = self.get(dotted)
        return value if isinstance(value, dict) else {}

    def names(self, option: str) -> frozenset[str]:
        """An option that is a list of names."""
        value = self.options[option]
        if not isinstance(value, list):
            raise TypeError(option)
        return frozenset(map(str, value))


class Violation(NamedTuple):
    """A check's answer: not this.

    Args:
        path: The key path at fault.
        message: Which of the check's messages says so.
        params: The message's parameters, beside ``key``, ``path`` and ``value``.
        at_key: Whether to point at the key; else at the value.
        span: The place, if it is not where ``path`` stands.
        related: Other key paths that matter, each with the message that says why.
        related_spans: The same for places without a path of their own.
        changes: How to fix it, if the check itself knows; else the checklist's ``fix`` counts.
        safe: Whether ``changes`` surely keep what the author wanted.
    """

    path: KeyPath
    message: str = "default"
    params: Mapping[str, object] = MappingProxyType({})
    at_key: bool = False
    span: Location | None = None
    related: tuple[tuple[KeyPath, str], ...] = ()
    related_spans: tuple[tuple[Location, str], ...] = ()
    changes: tuple[ValueChange, ...] = ()
    safe: bool = False
