"""Check Python code: settings of MindSpore made in code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.errors import closest
from ms_tune.facts.keys import mindspore_values
from ms_tune.facts.query import load
from ms_tune.lint.environment.settings import items
from ms_tune.lint.python_code.flow import is_compiled, is_graph_only
from ms_tune.lint.python_code.module import FUNCTIONS, Module, module_of
from ms_tune.lint.python_code.rewrites import OPERATORS, counterpart, parameter_names
from ms_tune.lint.python_code.syntax import assigned
from ms_tune.source.yaml import is_same

# The keys of MindSpore 2.9's two functions, each with its replacement, if any (``mindspore/context.py``,
# ``parallel/_auto_parallel_context.py``).
_REPORTED = load("mindspore_context")
_SET_CONTEXT, _SET_PARALLEL = "mindspore.set_context", "mindspore.set_auto_parallel_context"
_DEPRECATED = {"set_context": _REPORTED["deprecated"], "set_auto_parallel_context": _REPORTED["parallel_deprecated"]}
_DETERMINISM = ("deterministic", "pynative_synchronize")
_LISTED = ("mode", "memory_optimize_level", "exec_order", "device_target", "jit_syntax_level", "save_graphs")
_ONCE = ("mindspore.set_deterministic", "mindspore.runtime.set_memory")
# Conditions that show that the user of the code requests a setting.
_OPT_IN = re.compile(r"determin|reprod|debug|sync|block", re.IGNORECASE)


def find_settings(context: CheckContext) -> Iterator[Violation]:
    """Report a setting made by a ``keyword`` of ``set_context`` with a ``value``, or by a ``call`` with a ``first`` argument.

    Without ``first`` any call counts. ``unless-asked`` excludes settings that a switch in the code enables.
    """
    module, options = module_of(context.source), context.options
    for call, name in module.calls:
        found = (one for one in _context_keywords(module, call, name) if one.arg == options.get("keyword"))
        nodes: list[ast.AST] = [one for one in found if is_same(_constant(one), options["value"])]
        if name == options["call"] and ("first" not in options or is_same(_first(call), options["first"])):
            nodes.append(call)
        if nodes and not (options.get("unless-asked") and module.is_opt_in(call, _OPT_IN)):
            yield from (Violation((), span=module.span(one)) for one in nodes)


def refused(context: CheckContext) -> Iterator[Violation]:
    """Report a value of the wrong type for determinism: its two functions accept different types."""
    module = module_of(context.source)
    for call, name in module.calls:
        for keyword in _context_keywords(module, call, name):
            value = _constant(keyword)
            if keyword.arg == "deterministic" and value is not None and value not in ("ON", "OFF"):
                yield Violation((), params={"given": repr(value), "wanted": "'ON' | 'OFF'"}, span=module.span(keyword))
        if name == "mindspore.set_deterministic":
            value = _first(call)
            if value is not None and not isinstance(value, bool):
                yield Violation((), params={"given": repr(value), "wanted": "True | False"}, span=module.span(call))


def repeated(context: CheckContext) -> Iterator[Violation]:
    """Report settings that MindSpore accepts once per process, but are made twice."""
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
    """Report deprecated keys of ``set_context`` and ``set_auto_parallel_context``."""
    module = module_of(context.source)
    for call, name in module.calls:
        function = name.removeprefix("mindspore.")
        for keyword in keywords(module, call) if function in _DEPRECATED else ():
            instead = _DEPRECATED[function].get(str(keyword.arg))
            if instead is None or keyword.arg in _REPORTED["nested"]:
                continue  # unknown here, or refused
            if name == _SET_CONTEXT and keyword.arg in _DETERMINISM and _constant(keyword) not in (False, "OFF"):
                continue  # reported by the check of its effect
            params = {"function": function, "setting": str(keyword.arg), "instead": instead}
            yield Violation((), "default" if instead else "gone", params, span=module.span(keyword))


def skipped(context: CheckContext) -> Iterator[Violation]:
    """Report keys of ``set_context`` that MindSpore warns about and does not read."""
    module = module_of(context.source)
    for keyword in _all_context_keywords(module):
        if keyword.arg in _REPORTED["skipped"]:
            yield Violation((), params={"setting": keyword.arg}, span=module.span(keyword))


def unknown(context: CheckContext) -> Iterator[Violation]:
    """Report keys that ``set_context`` refuses, and gradient accumulation, which ``set_auto_parallel_context`` refuses."""
    module = module_of(context.source)
    for call, name in module.calls:
        for keyword in keywords(module, call) if name in (_SET_CONTEXT, _SET_PARALLEL) else ():
            message, params = "default", {"setting": str(keyword.arg)}
            if name == _SET_PARALLEL:
                steps = _constant(keyword)
                if keyword.arg != "grad_accumulation_step" or not isinstance(steps, int) or steps <= 1:
                    continue
                message = "accumulation"
            elif keyword.arg in _REPORTED["removed"]:
                message, params = "removed", {**params, "instead": _REPORTED["removed"][keyword.arg]}
            elif keyword.arg not in _REPORTED["nested"]:
                continue
            yield Violation((), message, params, span=module.span(keyword))


def unrecognised(context: CheckContext) -> Iterator[Violation]:
    """Report keys that ``set_context`` does not know."""
    module = module_of(context.source)
    tables = (
        mindspore_values("context_keys"),
        *(_REPORTED[one] for one in ("nested", "removed", "skipped", "deprecated")),
    )
    known = {key for table in tables for key in table}
    for keyword in _all_context_keywords(module):
        if keyword.arg not in known:
            similar = closest(str(keyword.arg), sorted(known))
            params = {"setting": keyword.arg, "similar": similar}
            yield Violation((), "similar" if similar else "default", params, span=module.span(keyword))


def refused_values(context: CheckContext) -> Iterator[Violation]:
    """Report values that ``set_context`` refuses for keys with a fixed list of values."""
    module = module_of(context.source)
    for keyword in _all_context_keywords(module):
        if keyword.arg not in _LISTED or not isinstance(keyword.value, ast.Constant):
            continue
        allowed, given = mindspore_values(f"context_{keyword.arg}"), keyword.value.value
        switch = isinstance(given, bool) and keyword.arg == "save_graphs"
        if not switch and not any(is_same(given, one) for one in allowed):
            params = {"setting": keyword.arg, "given": repr(given), "choices": ", ".join(map(repr, allowed))}
            yield Violation((), params=params, span=module.span(keyword))


def _context_keywords(module: Module, call: ast.Call, name: str) -> Iterator[ast.keyword]:
    return keywords(module, call) if name == _SET_CONTEXT else iter(())


def _all_context_keywords(module: Module) -> Iterator[ast.keyword]:
    return (keyword for call, name in module.calls for keyword in _context_keywords(module, call, name))


def keywords(module: Module, call: ast.Call) -> Iterator[ast.keyword]:
    """Yield the keywords of a call, including those of a literal dictionary (``**{...}``)."""
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
    """Report faulty or tracking values of ``os.environ["MS_ALLOC_CONF"]``, which is read once, at first use of the memory pool."""
    module = module_of(context.source)
    for node in module.of(ast.Assign):
        value = node.value.value if isinstance(node.value, ast.Constant) else None
        if not isinstance(value, str) or not any(_is_allocator(module, target) for target in node.targets):
            continue
        for item in items(value):
            on = item.key == "memory_tracker" and item.value in ("True", "true")
            if item.key is None or on:
                message = "tracker" if on else "dropped"
                yield Violation((), message, {"item": item.text}, span=module.span(node.value))


def _is_allocator(module: Module, target: ast.expr) -> bool:
    if not isinstance(target, ast.Subscript) or module.name(target.value) != "os.environ":
        return False
    return isinstance(target.slice, ast.Constant) and target.slice.value == "MS_ALLOC_CONF"


def shard_size(context: CheckContext) -> Iterator[Violation]:
    """Report ``zero_shard_size`` if it is unused, or 0 or 1, which are refused."""
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
    """Report a function of ops, or a cell of nn, for which mint has an equivalent."""
    module = module_of(context.source)
    for call, name in () if is_graph_only(module) else module.calls:
        new = counterpart(name, call)
        if new is not None:
            names = parameter_names(name)
            renamed = ", ".join(
                f"{one.arg} -> {names[one.arg]}" for one in call.keywords if one.arg and one.arg in names
            )
            params = {"old": name.removeprefix("mindspore."), "new": new, "renamed": renamed}
            yield Violation((), "keywords" if renamed else "default", params, span=module.span(call.func))


def operators(context: CheckContext) -> Iterator[Violation]:
    """Report an operator's class (``P.MatMul()``) in dynamic-graph code, if mint has a function that does the same."""
    module = module_of(context.source)
    for call, name in () if is_graph_only(module) else module.calls:
        new = OPERATORS.get(name)
        if new is not None and not is_compiled(module, call):
            yield Violation(
                (), params={"old": name.removeprefix("mindspore."), "new": new}, span=module.span(call.func)
            )


def _constant(keyword: ast.keyword | None) -> object:
    return keyword.value.value if keyword is not None and isinstance(keyword.value, ast.Constant) else None


def _first(call: ast.Call) -> object:
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return values[0].value if values and isinstance(values[0], ast.Constant) else None
