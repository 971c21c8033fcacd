"""Files beside configs in the form that checks look at, and how such a file is fixed."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from ms_tune.source.yaml import SourceFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.diagnostics import Fix
    from ms_tune.dialects.check_context import Violation
    from ms_tune.lint.checklist import FixRule


class CodeSource(SourceFile):
    """A file that is no YAML: it knows how its text is edited, and how an edit is proved to do nothing else."""

    @abstractmethod
    def again(self, text: str) -> CodeSource:
        """The same file with another text.

        Raises:
            ConfigError: The text cannot be read as what the file is.
        """

    @abstractmethod
    def fix(self, rule: FixRule, violation: Violation) -> Fix:
        """How a violation is fixed, not yet proved.

        Raises:
            EditRefusedError: The place is not of a form that can be edited safely.
        """

    @abstractmethod
    def proves(self, fixes: Sequence[Fix]) -> bool:
        """Whether the text can be read with all these fixes made, and then means what they say and nothing else."""

    @abstractmethod
    def quoted(self) -> list[tuple[int, int]]:
        """Where values stand in which a ``#`` starts no comment."""
