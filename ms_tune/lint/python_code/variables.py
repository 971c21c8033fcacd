"""The environment variables that Python code sets, in the form in which those of scripts are checked."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NoReturn

from ms_tune.lint.environment.settings import Assignment, Environment, EnvironmentSource
from ms_tune.lint.python_code.module import FUNCTIONS, LOOPS, module_of
from ms_tune.lint.python_code.syntax import assigned
from ms_tune.source.edit import EditRefusedError
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.diagnostics import Fix
    from ms_tune.dialects.check_context import FixRule, Violation
    from ms_tune.lint.python_code.module import Module
    from ms_tune.source.yaml import SourceFile

# Conditions under which a setting is one that the user of the code asks for.
_ASKED = re.compile(r"debug|sync|block|simul|dry_?run|determin|reprod|profil|track", re.IGNORECASE)
_BLOCKS = (*FUNCTIONS, *LOOPS, ast.If, ast.Try, ast.With, ast.AsyncWith, ast.ClassDef)


class CodeVariables(EnvironmentSource):
    """Variables that code sets. A fix of them would be one of code, and is not made yet."""

    def fix(self, rule: FixRule, violation: Violation) -> Fix:
        """Not done, as said above."""
        return self._refuse(rule, violation)

    def proves(self, fixes: Sequence[Fix]) -> bool:
        """Nothing is fixed, so nothing is proved."""
        return not fixes

    def _refuse(self, *_: object) -> NoReturn:
        raise EditRefusedError(msg("edits.not-here"))


def variables_in(source: SourceFile) -> CodeVariables | None:
    """The variables that a Python file sets, with ``os.environ`` or ``os.putenv``; None if it sets none."""
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
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str) or _is_asked_for(module, value):
        return
    block = tuple(id(one) for one in reversed([*module.around(value)]) if isinstance(one, _BLOCKS))
    extends = any(isinstance(one, ast.Constant) and one.value == key.value for one in ast.walk(value))
    yield Assignment(key.value, _text(module, value), module.span(key), module.span(value), block, extends)


def _text(module: Module, value: ast.expr) -> str | None:
    """The text that a variable is set to; None if only a run could tell."""
    if isinstance(value, ast.Name):
        given = list(assigned(module, value))
        value = given[0] if len(given) == 1 and given[0] is not None else value
    if isinstance(value, ast.Call) and module.name(value.func) == "?str" and len(value.args) == 1:
        value = value.args[0]
    return str(value.value) if isinstance(value, ast.Constant) and isinstance(value.value, (str, int)) else None


def _is_asked_for(module: Module, node: ast.AST) -> bool:
    """Whether the variable is only set where a switch of the code's own says so: ``if args.debug: ...``."""
    child = node
    for one in module.around(node):
        if isinstance(one, ast.If) and child in one.body and _ASKED.search(ast.unparse(one.test)):
            return True
        child = one
    return False
