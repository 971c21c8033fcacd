"""One Python file in front of checks and fixes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Fix
from ms_tune.dialects.check_context import CodeSource
from ms_tune.errors import ConfigError, nearby, reason_of
from ms_tune.lint.python_code.module import module_of
from ms_tune.lint.python_code.swaps import leads_to
from ms_tune.source.edit import EditRefusedError, apply_edits
from ms_tune.source.yaml import decode
from ms_tune.source.yaml_nodes import Document, Node
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ms_tune.dialects.check_context import FixRule, Violation


class PythonSource(CodeSource):
    """A Python file. A fix of it is proved by comparing syntax trees."""

    def again(self, text: str) -> PythonSource:
        """The same file with another text."""
        return parse_python(text, self.path)

    def fix(self, rule: FixRule, violation: Violation) -> Fix:
        """What the checklist's rewrite makes of the place."""
        from ms_tune.lint.python_code.rewrites import REWRITES  # noqa: PLC0415 - most files need no fix

        if rule.rewrite not in REWRITES:
            raise EditRefusedError(msg("edits.not-here"))
        made = REWRITES[rule.rewrite](module_of(self), violation)
        return Fix(rule.safe, made.title, made.swaps, made.edits)

    def proves(self, fixes: Sequence[Fix]) -> bool:
        """Whether the fixed text parses, to the tree that the swaps make of the old one."""
        # Two fixes may add the same import: that is one edit.
        edits = dict.fromkeys(edit for fix in fixes for edit in fix.edits)
        swaps = dict.fromkeys(swap for fix in fixes for swap in fix.changes)
        try:
            text = apply_edits(self.text, edits)
        except ValueError:
            return False
        return leads_to(module_of(self).tree, swaps, text)

    def quoted(self) -> list[tuple[int, int]]:
        """Where strings stand."""
        module = module_of(self)
        spans = (
            module.span(node)
            for node in module.of(ast.JoinedStr, ast.Constant)
            if isinstance(getattr(node, "value", ""), str)
        )
        return [(span.start, span.end) for span in spans]


def read_python(path: Path) -> PythonSource:
    """A Python file.

    Raises:
        ConfigError: The file cannot be read, or is not Python.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(msg("config.not-found"), nearby(path), path=path) from None
    except OSError as error:
        raise ConfigError(msg("config.unreadable", reason=reason_of(error)), path=path) from error
    return parse_python(decode(content, path), path)


def parse_python(text: str, path: Path) -> PythonSource:
    """A Python file from its text.

    Raises:
        ConfigError: The text is not Python.
    """
    text = text.removeprefix("\ufeff")
    lines = Document(text, path)
    root = Node(lines.span(0, len(text)))
    source = PythonSource(path, text, {}, (), root)
    module_of(source)
    return source
