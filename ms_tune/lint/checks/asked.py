"""What is worked out once for a config, although several checks ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ms_tune.lint.context import Context


@dataclass(frozen=True, eq=False, slots=True)
class Asked:
    """A context as a key of a cache: the same for every check of one config and one version."""

    context: Context

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Asked):
            return False
        mine, its = self.context, other.context
        return its.source is mine.source and (its.version, its.dialect) == (mine.version, mine.dialect)

    def __hash__(self) -> int:
        return id(self.context.source)
