"""What the linter says about itself and its comments: rules that no checklist holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ms_tune.diagnostics import Category, Severity
from ms_tune.text import lookup

if TYPE_CHECKING:
    from ms_tune.text import Text


class OwnRule(NamedTuple):
    """A rule about ms-tune's own working. Its texts are in :mod:`ms_tune.text.rule`."""

    id: str
    name: str
    severity: Severity
    category: Category
    bad: str = ""
    good: str = ""

    @property
    def family(self) -> None:
        """Each stands alone."""

    def text(self, part: str) -> Text:
        """Its ``title``, ``why`` or ``help``."""
        return lookup(f"rule.{self.name}.{part}")


INTERNAL_ERROR = OwnRule("MST001", "internal-error", Severity.ERROR, Category.CORRECTNESS)
UNUSED_IGNORE = OwnRule(
    "MST002",
    "unused-ignore",
    Severity.WARNING,
    Category.STYLE,
    bad="profile: False  # ms-tune: ignore[profiling-on] measuring this week\n",
    good="profile: False\n",
)
MALFORMED_IGNORE = OwnRule(
    "MST003",
    "malformed-ignore",
    Severity.WARNING,
    Category.STYLE,
    bad="profile: True  # ms-tune: ignore, measuring this week\n",
    good="profile: True  # ms-tune: ignore[profiling-on] measuring this week\n",
)

TOO_MANY = OwnRule("MST004", "too-many-findings", Severity.INFO, Category.STYLE)

OWN_RULES = (INTERNAL_ERROR, UNUSED_IGNORE, MALFORMED_IGNORE, TOO_MANY)
