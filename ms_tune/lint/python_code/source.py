"""Provide a Python file to checks and fixes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ms_tune.diagnostics import Fix
from ms_tune.dialects.check_context import CodeSource, FixRule, Violation
from ms_tune.lint.environment.settings import Assignment, Environment, EnvironmentSource
from ms_tune.lint.python_code.module import FUNCTIONS, LOOPS, Module, module_of
from ms_tune.lint.python_code.rewrites import REWRITES, leads_to
from ms_tune.lint.python_code.syntax import assigned
from ms_tune.source.edit import EditRefusedError, apply_edits
from ms_tune.source.yaml import SourceFile
from ms_tune.source.yaml_nodes import Document, Node
from ms_tune.text import msg


class PythonSource(CodeSource):
    """A Python file. Its fixes are verified by comparing syntax trees."""

    def with_text(self, text: str) -> PythonSource:
        """Return the same file with another text."""
        return parse_python(text, self.path)

    def fix(self, rule: FixRule, violation: Violation) -> Fix:
        """Return the fix that the checklist's rewrite makes at the violation."""
        if rule.rewrite not in REWRITES:
            raise EditRefusedError(msg("edits.not-here"))
        made = REWRITES[rule.rewrite](module_of(self), violation)
        return Fix(rule.safe, made.title, made.swaps, made.edits)

    def proves(self, fixes: Sequence[Fix]) -> bool:
        """Return whether the fixed text parses to exactly the old syntax tree with the swaps applied."""
        # Two fixes may add the same import: this counts as one edit.
        edits = dict.fromkeys(edit for fix in fixes for edit in fix.edits)
        swaps = dict.fromkeys(swap for fix in fixes for swap in fix.changes)
        try:
            text = apply_edits(self.text, edits)
        except ValueError:
            return False
        return leads_to(module_of(self).tree, swaps, text)

    def quoted(self) -> list[tuple[int, int]]:
        """Return the ranges of strings."""
        module = module_of(self)
        spans = (
            module.span(node)
            for node in module.of(ast.JoinedStr, ast.Constant)
            if isinstance(getattr(node, "value", ""), str)
        )
        return [(span.start, span.end) for span in spans]


def parse_python(text: str, path: Path) -> PythonSource:
    """Parse a Python file from its text."""
    text = text.removeprefix("\ufeff")
    lines = Document(text, path)
    root = Node(lines.span(0, len(text)))
    source = PythonSource(path, text, {}, (), root)
    module_of(source)
    return source


# Conditions that show that the user of the code requests a setting.
_OPT_IN = re.compile(r"debug|sync|block|simul|dry_?run|determin|reprod|profil|track", re.IGNORECASE)
_BLOCKS = (*FUNCTIONS, *LOOPS, ast.If, ast.Try, ast.With, ast.AsyncWith, ast.ClassDef)


class CodeVariables(EnvironmentSource):
    """Variables that code sets. Fixes of them, which would be fixes of code, are not supported yet."""

    def fix(self, rule: FixRule, violation: Violation) -> Fix:  # noqa: ARG002 - as the others have it
        """Raise an error, because such fixes are not supported."""
        raise EditRefusedError(msg("edits.not-here"))

    def proves(self, fixes: Sequence[Fix]) -> bool:
        """Return False for any fix: none can be verified."""
        return not fixes


def variables_in(source: SourceFile) -> CodeVariables | None:
    """Return the variables that a Python file sets, with ``os.environ`` or ``os.putenv``; None if it sets none."""
    module = module_of(source)
    found = sorted(_assignments(module), key=lambda one: one.key.start)
    if not found:
        return None
    return Environment(source.path, source.text, tuple(found)).source_as(CodeVariables)


def _assignments(module: Module) -> Iterator[Assignment]:
    for node in module.of(ast.Assign, ast.Call):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and module.name(target.value) == "os.environ":
                    yield from _assignment(module, target.slice, node.value)
        elif isinstance(node, ast.Call):
            yield from _called(module, node)


def _called(module: Module, call: ast.Call) -> Iterator[Assignment]:
    name = module.name(call.func)
    if name in ("os.putenv", "os.environ.setdefault") and len(call.args) > 1:
        yield from _assignment(module, call.args[0], call.args[1])
    elif name == "os.environ.update":
        for given in call.args[:1]:
            if isinstance(given, ast.Dict):
                for key, value in zip(given.keys, given.values, strict=True):
                    yield from _assignment(module, key, value)
        for keyword in call.keywords:
            if keyword.arg:
                yield from _assignment(module, ast.copy_location(ast.Constant(keyword.arg), keyword), keyword.value)


def _assignment(module: Module, key: ast.expr | None, value: ast.expr) -> Iterator[Assignment]:
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str) or module.is_opt_in(value, _OPT_IN):
        return
    block = tuple(id(one) for one in reversed([*module.around(value)]) if isinstance(one, _BLOCKS))
    extends = any(isinstance(one, ast.Constant) and one.value == key.value for one in ast.walk(value))
    yield Assignment(key.value, _text(module, value), module.span(key), module.span(value), block, extends)


def _text(module: Module, value: ast.expr) -> str | None:
    if isinstance(value, ast.Name):
        given = list(assigned(module, value))
        value = given[0] if len(given) == 1 and given[0] is not None else value
    if isinstance(value, ast.Call) and module.name(value.func) == "?str" and len(value.args) == 1:
        value = value.args[0]
    return str(value.value) if isinstance(value, ast.Constant) and isinstance(value.value, (str, int)) else None
