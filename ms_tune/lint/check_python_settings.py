"""Checks of Python code: settings of MindSpore that are made in code."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.errors import closest
from ms_tune.facts.keys import mindspore_values
from ms_tune.facts.query import load
from ms_tune.lint.environment.variables import items
from ms_tune.lint.python_code.flow import is_compiled, is_graph_only
from ms_tune.lint.python_code.mint_names import OPERATORS, counterpart, parameter_names
from ms_tune.lint.python_code.module import FUNCTIONS, module_of
from ms_tune.lint.python_code.syntax import assigned
from ms_tune.source.yaml import is_same

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.lint.python_code.module import Module

# What MindSpore 2.9 says of the keys of its two functions: what takes the place of each, if anything does
# (``mindspore/context.py``, ``parallel/_auto_parallel_context.py``).
_REPORTED = load("mindspore_context")
_SET_CONTEXT = ("mindspore.set_context",)
_SET_PARALLEL = "mindspore.set_auto_parallel_context"
_LISTED = ("mode", "memory_optimize_level", "exec_order", "device_target", "jit_syntax_level", "save_graphs")
_ONCE = ("mindspore.set_deterministic", "mindspore.runtime.set_memory")
# Conditions under which a setting is one that the user of the code asks for.
_ASKED = re.compile(r"determin|reprod|debug|sync|block", re.IGNORECASE)


def deterministic(context: CheckContext) -> Iterator[Violation]:
    """``set_context(deterministic="ON")`` or ``set_deterministic(True)``."""
    module = module_of(context.source)
    for call, name in module.calls:
        for keyword in _keywords(module, call, name, "deterministic"):
            if _constant(keyword) == "ON" and not _is_asked_for(module, call):
                yield Violation((), span=module.span(keyword))
        if name == "mindspore.set_deterministic" and _first(call) is True and not _is_asked_for(module, call):
            yield Violation((), span=module.span(call))


def nondeterministic(context: CheckContext) -> Iterator[Violation]:
    """``set_context(deterministic="OFF")`` or ``set_deterministic(False)``."""
    module = module_of(context.source)
    for call, name in module.calls:
        for keyword in _keywords(module, call, name, "deterministic"):
            if _constant(keyword) == "OFF":
                yield Violation((), span=module.span(keyword))
        if name == "mindspore.set_deterministic" and _first(call) is False:
            yield Violation((), span=module.span(call))


def synchronous(context: CheckContext) -> Iterator[Violation]:
    """``set_context(pynative_synchronize=True)`` or ``runtime.launch_blocking()``."""
    module = module_of(context.source)
    for call, name in module.calls:
        for keyword in _keywords(module, call, name, "pynative_synchronize"):
            if _constant(keyword) is True and not _is_asked_for(module, call):
                yield Violation((), span=module.span(keyword))
        if name == "mindspore.runtime.launch_blocking" and not _is_asked_for(module, call):
            yield Violation((), span=module.span(call))


def refused(context: CheckContext) -> Iterator[Violation]:
    """The two forms of determinism take values of different types, and refuse each other's."""
    module = module_of(context.source)
    for call, name in module.calls:
        for keyword in _keywords(module, call, name, "deterministic"):
            value = _constant(keyword)
            if value is not None and value not in ("ON", "OFF"):
                yield Violation((), params={"given": repr(value), "wanted": "'ON' | 'OFF'"}, span=module.span(keyword))
        if name == "mindspore.set_deterministic":
            value = _first(call)
            if value is not None and not isinstance(value, bool):
                yield Violation((), params={"given": repr(value), "wanted": "True | False"}, span=module.span(call))


def repeated(context: CheckContext) -> Iterator[Violation]:
    """Settings that MindSpore takes once a process, made twice one after the other."""
    module = module_of(context.source)
    seen: dict[tuple[str, ast.AST | None], ast.Call] = {}
    for call, name in module.calls:
        statement = module.parents.get(call)
        block = module.parents.get(statement) if isinstance(statement, ast.Expr) else None
        if name in _ONCE and isinstance(block, (ast.Module, *FUNCTIONS)):
            first = seen.setdefault((name, block), call)
            if first is not call:
                related = ((module.span(first), "first"),)
                yield Violation((), params={"called": name}, span=module.span(call), related_spans=related)


def deprecated(context: CheckContext) -> Iterator[Violation]:
    """Keys of ``set_context`` and ``set_auto_parallel_context`` that are on their way out."""
    module = module_of(context.source)
    for _, keyword, table in _settings(module):
        if table is _REPORTED["parallel_deprecated"]:
            function = "set_auto_parallel_context"
        elif keyword.arg in ("deterministic", "pynative_synchronize") and _constant(keyword) not in (False, "OFF"):
            continue  # found for what it does
        else:
            function = "set_context"
        instead = table.get(str(keyword.arg))
        if instead is None or keyword.arg in _REPORTED["nested"]:
            continue  # unknown here, or refused
        params = {"function": function, "setting": str(keyword.arg), "instead": instead}
        yield Violation((), "default" if instead else "gone", params, span=module.span(keyword))


def skipped(context: CheckContext) -> Iterator[Violation]:
    """Keys of ``set_context`` that MindSpore warns of and does not read."""
    module = module_of(context.source)
    for _, keyword, table in _settings(module):
        if table is _REPORTED["deprecated"] and keyword.arg in _REPORTED["skipped"]:
            yield Violation((), params={"setting": keyword.arg}, span=module.span(keyword))


def unknown(context: CheckContext) -> Iterator[Violation]:
    """Keys that ``set_context`` refuses, and gradient accumulation, which ``set_auto_parallel_context`` refuses."""
    module = module_of(context.source)
    for _, keyword, table in _settings(module):
        key = str(keyword.arg)
        if table is _REPORTED["deprecated"] and key in _REPORTED["nested"]:
            yield Violation((), params={"setting": key}, span=module.span(keyword))
        elif table is _REPORTED["deprecated"] and key in _REPORTED["removed"]:
            yield Violation(
                (), "removed", {"setting": key, "instead": _REPORTED["removed"][key]}, span=module.span(keyword)
            )
        elif table is _REPORTED["parallel_deprecated"] and key == "grad_accumulation_step":
            steps = _constant(keyword)
            if isinstance(steps, int) and steps > 1:
                yield Violation((), "accumulation", {"setting": key}, span=module.span(keyword))


def unrecognised(context: CheckContext) -> Iterator[Violation]:
    """Keys that ``set_context`` has never heard of."""
    module = module_of(context.source)
    known = {*mindspore_values("context_keys"), *_REPORTED["nested"], *_REPORTED["removed"], *_REPORTED["skipped"]}
    known.update(_REPORTED["deprecated"])
    for _, keyword, table in _settings(module):
        key = str(keyword.arg)
        if table is _REPORTED["deprecated"] and key not in known:
            similar = closest(key, sorted(known))
            params = {"setting": key, "similar": similar}
            yield Violation((), "similar" if similar else "default", params, span=module.span(keyword))


def refused_values(context: CheckContext) -> Iterator[Violation]:
    """Values that ``set_context`` refuses for a key that it has a list for."""
    module = module_of(context.source)
    for _, keyword, table in _settings(module):
        if (
            table is not _REPORTED["deprecated"]
            or keyword.arg not in _LISTED
            or not isinstance(keyword.value, ast.Constant)
        ):
            continue
        allowed, given = mindspore_values(f"context_{keyword.arg}"), keyword.value.value
        switch = isinstance(given, bool) and keyword.arg == "save_graphs"
        if not switch and not any(is_same(given, one) for one in allowed):
            params = {"setting": keyword.arg, "given": repr(given), "choices": ", ".join(map(repr, allowed))}
            yield Violation((), params=params, span=module.span(keyword))


def _settings(module: Module) -> Iterator[tuple[ast.Call, ast.keyword, Mapping[str, str]]]:
    """Every keyword of the two functions, with the table that is about it."""
    for call, name in module.calls:
        table = (
            _REPORTED["deprecated"]
            if name in _SET_CONTEXT
            else _REPORTED["parallel_deprecated"]
            if name == _SET_PARALLEL
            else None
        )
        if table is not None:
            yield from ((call, keyword, table) for keyword in keywords(module, call) if keyword.arg)


def keywords(module: Module, call: ast.Call) -> Iterator[ast.keyword]:
    """The keywords of a call, those of a dictionary that is written out for it (``**{...}``) among them."""
    for one in call.keywords:
        if one.arg:
            yield one
            continue
        given = list(assigned(module, one.value)) if isinstance(one.value, ast.Name) else [one.value]
        made = given[0] if len(given) == 1 else None
        if isinstance(made, ast.Dict):
            for key, value in zip(made.keys, made.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    ends = {"end_lineno": value.end_lineno, "end_col_offset": value.end_col_offset}
                    yield ast.keyword(key.value, value, lineno=key.lineno, col_offset=key.col_offset, **ends)
        elif isinstance(made, ast.Call) and module.name(made.func) == "?dict":
            yield from keywords(module, made)


def allocator(context: CheckContext) -> Iterator[Violation]:
    """``os.environ["MS_ALLOC_CONF"] = ...``: read once, at the first use of the memory pool."""
    module = module_of(context.source)
    for node in module.of(ast.Assign):
        if any(_is_variable(module, target) for target in node.targets):
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            if not isinstance(value, str):
                continue
            for item in items(value):
                if item.key is None:
                    yield Violation((), "dropped", {"item": item.text}, span=module.span(node.value))
                elif item.key == "memory_tracker" and item.value in ("True", "true"):
                    yield Violation((), "tracker", {"item": item.text}, span=module.span(node.value))


def simulation(context: CheckContext) -> Iterator[Violation]:
    """``dryrun.set_simulation()`` left in the code."""
    module = module_of(context.source)
    for call, name in module.calls:
        if name == "mindspore.utils.dryrun.set_simulation":
            yield Violation((), span=module.span(call))


def shard_size(context: CheckContext) -> Iterator[Violation]:
    """``zero_shard_size`` where it is not used, and 1, which is refused."""
    module = module_of(context.source)
    for call, name in module.calls:
        short = name.rpartition(".")[2].lstrip("?")
        keyword = next((one for one in call.keywords if one.arg == "zero_shard_size"), None)
        if short == "initialize_zero_group":
            value = _constant(keyword) if keyword else _first(call)
            if value == 1 or value == 0:  # noqa: PLR1714 - True must not count
                yield Violation((), "one", span=module.span(keyword or call))
        elif short == "initialize_model_parallel" and keyword is not None:
            yield Violation((), "unused", span=module.span(keyword))


def mint(context: CheckContext) -> Iterator[Violation]:
    """A function of ops, or a cell of nn, that mint has with the same meaning."""
    module = module_of(context.source)
    if is_graph_only(module):
        return
    for call, name in module.calls:
        new = counterpart(name, call)
        if new is not None:
            names = parameter_names(name)
            renamed = ", ".join(
                f"{one.arg} -> {names[one.arg]}" for one in call.keywords if one.arg and one.arg in names
            )
            params = {"old": _short(name), "new": new, "renamed": renamed}
            yield Violation((), "keywords" if renamed else "default", params, span=module.span(call.func))


def operators(context: CheckContext) -> Iterator[Violation]:
    """An operator's class (``P.MatMul()``) in code of the dynamic graph, where mint has a function that does the same."""
    module = module_of(context.source)
    if is_graph_only(module):
        return
    for call, name in module.calls:
        new = OPERATORS.get(name)
        if new is not None and not is_compiled(module, call):
            yield Violation((), params={"old": _short(name), "new": new}, span=module.span(call.func))


def _is_asked_for(module: Module, call: ast.Call) -> bool:
    """Whether a setting is only made where a switch of the code's own says so: ``if args.debug: ...``."""
    child: ast.AST = call
    for one in module.around(call):
        if isinstance(one, ast.If) and child in one.body and _ASKED.search(ast.unparse(one.test)):
            return True
        child = one
    return False


def _keywords(module: Module, call: ast.Call, name: str, key: str) -> Iterator[ast.keyword]:
    if name in _SET_CONTEXT:
        yield from (keyword for keyword in keywords(module, call) if keyword.arg == key)


def _constant(keyword: ast.keyword | None) -> object:
    return keyword.value.value if keyword is not None and isinstance(keyword.value, ast.Constant) else None


def _first(call: ast.Call) -> object:
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return values[0].value if values and isinstance(values[0], ast.Constant) else None


def _is_variable(module: Module, target: ast.expr) -> bool:
    return (
        isinstance(target, ast.Subscript)
        and module.name(target.value) == "os.environ"
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == "MS_ALLOC_CONF"
    )


def _short(name: str) -> str:
    return name.removeprefix("mindspore.")
