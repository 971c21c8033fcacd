"""Read from syntax trees where a framework's validation of arguments stops a program, and under which condition.

A condition is written in the language of the checklists (``checklists/README.md``), with the names of options. Nothing is
imported. What cannot be written so is listed with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from ms_tune.lint.rows import parse_expression

_VALIDATORS = ("pre_validate_args", "post_validate_args", "validate_args", "__post_init__")
# Fields of Megatron-LM's configs that are arguments with another name; the others have the same one.
_FIELDS = {"num_moe_experts": "num_experts"}
# Switches that Megatron-LM turns off, each with the option that must exceed 1 for it to stay on.
_TURNED_OFF = {"sequence_parallel": "tensor_model_parallel_size"}
# Values that validation sets if one of these options is given.
_DERIVED = {
    "virtual_pipeline_model_parallel_size": (
        "num_layers_per_virtual_pipeline_stage",
        "num_virtual_stages_per_pipeline_rank",
    )
}
_CHECKS = {"incompatible_check": "excludes", "dependency_check": "needs"}
_SIGNS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot)
_OPPOSITE = {
    ast.Eq: ast.NotEq,
    ast.Lt: ast.GtE,
    ast.Gt: ast.LtE,
    ast.In: ast.NotIn,
    ast.Is: ast.IsNot,
}
_OPPOSITE |= {after: before for before, after in _OPPOSITE.items()}
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_MOST_CHARACTERS = 160  # of a framework's text
_DEEPEST = 3  # calls of helpers
# Reasons why a condition cannot be written.
_COMPUTED = "a value that is no option of the parser"
_CONDITIONAL = "a local value that depends on conditions"
_UNDECIDED = "no option decides it"
_LACKING = "an option that the parser lacks"
_CHANGED = "a value that the class changes before"
_ITEM = "item"  # the checklists' word for an element


Key = tuple[str, str, str, str]


class Stop(NamedTuple):
    """A place where a program stops."""

    file: str  # in its repository
    line: int
    error: str  # the exception
    text: str  # its message, with ``{}`` for parts that are known at run time
    condition: str  # in the language of the checklists; empty if it cannot be written so
    reason: str  # why not

    @property
    def key(self) -> Key:
        """Return the parts that do not change with the line: file, exception, text and condition."""
        return self.file, self.error, self.text, self.condition


class OutOfReachError(Exception):
    """A part of a condition that the language of the checklists does not have, or whose value is not an option's."""


def stops_of(root: Path, places: Sequence[str], options: frozenset[str], room: str = "argument") -> Iterator[Stop]:
    """Yield the places in the validation functions of files and folders of a repository.

    ``options`` are the known destinations, or the fields of a dataclass if ``room`` is ``network``.
    """
    for place in places:
        path = root / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.is_file() else []:
            yield from _File(file, str(file.relative_to(root)), options, room).stops()


def changed_before(root: Path, places: Sequence[str]) -> Iterator[str]:
    """Yield the arguments that features set in ``pre_validate_args``."""
    for file in sorted(file for place in places for file in (root / place).rglob("*.py")):
        for function in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef) and function.name == _VALIDATORS[0]:
                targets = (one for node in ast.walk(function) if isinstance(node, ast.Assign) for one in node.targets)
                yield from (one.attr for one in targets if isinstance(one, ast.Attribute))


class _File:
    """One source file."""

    def __init__(self, path: Path, name: str, options: frozenset[str], room: str) -> None:
        self.name, self.options, self.room = name, options, room
        self.tree = ast.parse(path.read_text("utf-8"))
        self.functions = {one.name: one for one in self.tree.body if isinstance(one, ast.FunctionDef)}

    def values_of(self, name: str) -> list[Any]:
        """Return the values of an enumeration."""
        kinds = [one for one in self.tree.body if isinstance(one, ast.ClassDef) and one.name == name]
        body = [one.value for kind in kinds for one in kind.body if isinstance(one, ast.Assign)]
        return [one.value for one in body if isinstance(one, ast.Constant)]

    def stops(self) -> Iterator[Stop]:
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef):
                methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
                feature = _feature_name(methods.get("__init__"))
                for name in _VALIDATORS:
                    if name in methods:
                        yield from _Function(self, methods, feature).stops(methods[name])
            elif isinstance(node, ast.FunctionDef) and _validates(node.name, self.name):
                inner = [one for one in node.body if isinstance(one, ast.FunctionDef)]  # of a decorator
                yield from _Function(self, {}, "").stops(inner[0] if inner else node)


def _validates(name: str, file: str) -> bool:
    """Return whether a function validates arguments; the oldest releases have one for each subject, and decorators."""
    return name in _VALIDATORS or (file.endswith("/arguments.py") and "validate" in name)


def _feature_name(init: ast.FunctionDef | None) -> str:
    """Return the name that a feature's constructor hands to its base class, as the base class spells it."""
    for call in (node for node in ast.walk(init) if isinstance(node, ast.Call)) if init else ():
        if getattr(call.func, "attr", "") == "__init__":
            given = [*call.args, *(word.value for word in call.keywords)]
            if given and isinstance(given[0], ast.Constant):
                return str(given[0].value).lower().strip().replace("-", "_")
    return ""


class _Function:
    """A validation function, with the options that its statements are known to have set so far."""

    def __init__(self, file: _File, methods: Mapping[str, ast.FunctionDef], feature: str, depth: int = 0) -> None:
        self.file, self.methods, self.feature, self.depth = file, methods, feature, depth
        # Local names, each with its expression and the conditions under which it was set.
        self.known: dict[str, tuple[ast.expr | str, list[ast.expr | str]]] = {}
        self.here: Sequence[ast.expr | str] = ()  # the conditions of the current statement
        self.settings: frozenset[str] = frozenset()  # names of the parameters that hold the arguments
        self.set: dict[str, int] = {}  # fields of a dataclass, each with the first line that sets it to another value

    def stops(self, function: ast.FunctionDef, guards: Sequence[ast.expr | str] = ()) -> Iterator[Stop]:
        names = [one.arg for one in function.args.args if one.arg != "self"]
        self.settings = frozenset(names[:1] or ["self"])  # a config has them itself
        yield from self._block(function.body, list(guards))

    def _block(self, body: Sequence[ast.stmt], guards: list[ast.expr | str]) -> Iterator[Stop]:  # noqa: C901, PLR0912 - one a form
        for node in body:
            match node:
                case ast.If(test=test, body=then, orelse=other):
                    yield from self._block(then, [*guards, test])
                    # Where one side stops the program, the other side's condition needs not exclude it.
                    against = [] if _stops(then) else [_negated(test)]
                    yield from self._block(other, [*guards, *against])
                    if _ends(then) and not _ends(other):
                        guards += against
                    elif _ends(other) and not _stops(other):
                        guards.append(test)
                case ast.Assert(test=test, msg=text):
                    yield self._stop(node, "AssertionError", text, [*guards, _negated(test)])
                case ast.Raise(exc=ast.Call(func=kind, args=texts)):
                    yield self._stop(node, ast.unparse(kind), texts[0] if texts else None, guards)
                case ast.Raise(exc=ast.expr() as kind):
                    yield self._stop(node, ast.unparse(kind), None, guards)
                case ast.Expr(value=ast.Call() as call):
                    yield from self._call(call, guards)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.known[name] = (value, list(guards))
                case ast.Assign(
                    targets=[ast.Tuple(elts=[ast.Name(id=quotient), ast.Name(id=rest)])],
                    value=ast.Call(func=ast.Name(id="divmod"), args=[left, right]),
                ):
                    self.known[quotient] = (ast.BinOp(left, ast.FloorDiv(), right), list(guards))
                    self.known[rest] = (ast.BinOp(left, ast.Mod(), right), list(guards))
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                    fills = isinstance(value, ast.BoolOp) and ast.unparse(value.values[0]) == f"self.{name}"
                    if not fills and not (guards and ast.unparse(guards[-1]) == f"self.{name} is None"):  # type: ignore[arg-type]
                        self.set.setdefault(name, node.lineno)
                case ast.AugAssign(target=ast.Name(id=name)):
                    self.known.pop(name, None)
                case ast.For() | ast.While():
                    yield from self._block(node.body, [*guards, "a loop"])
                case ast.Try():
                    for part in (node.body, node.orelse, node.finalbody):
                        yield from self._block(part, [*guards, "code that may fail and go on"])
                    for handler in node.handlers:
                        yield from self._block(handler.body, [*guards, "the failure of other code"])
                case ast.With():
                    yield from self._block(node.body, guards)

    def _call(self, call: ast.Call, guards: list[ast.expr | str]) -> Iterator[Stop]:
        """Yield the stops of a helper that is given the arguments."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in _CHECKS and len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
            settings, other = ast.unparse(call.args[0]), str(call.args[1].value)
            excludes = _CHECKS[name] == "excludes"
            text = f"{self.feature} and {other} are incompatible." if excludes else f"{self.feature} requires {other}."
            sides = [f"getattr({settings}, {one!r}, None)" for one in (self.feature, other)]
            test = ast.parse(f"{sides[0]} and {'' if excludes else 'not '}{sides[1]}", mode="eval").body
            yield self._stop(call, "AssertionError", ast.Constant(text), [*guards, test])
            return
        of_class = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in ("self", "cls")
        has_settings = call.args and ast.unparse(call.args[0]) in self.settings
        if self.depth >= _DEEPEST or not (has_settings or (of_class and self.file.room == "network")):
            return
        function = self.methods.get(name) if of_class else self.file.functions.get(name)
        if function is not None:
            inner = _Function(self.file, self.methods, self.feature, self.depth + 1)
            given = [self._written(one) for one in guards]
            yield from inner.stops(function, given)

    def _written(self, guard: ast.expr | str) -> ast.expr | str:
        """Return a guard without local names, for use in another function."""
        try:
            return self._translated(guard)
        except OutOfReachError as error:
            return str(error)

    def _stop(
        self, node: ast.stmt | ast.expr, error: str, text: ast.expr | None, guards: Sequence[ast.expr | str]
    ) -> Stop:
        condition, reason = "", ""
        self.here = guards
        try:
            parts = [_simplified(self._translated(one)) for one in guards]
            whole = _simplified(ast.BoolOp(ast.And(), parts)) if len(parts) > 1 else parts[0] if parts else None
            if whole is None or isinstance(whole, ast.Constant):
                reason = _UNDECIDED if whole is None else _LACKING
            else:
                condition = ast.unparse(ast.fix_missing_locations(whole))
                parse_expression(condition)
        except OutOfReachError as problem:
            reason = str(problem)
        except ValueError:
            condition, reason = "", "a condition that is too long"
        return Stop(self.file.name, node.lineno, error, _text(text), condition, reason)

    def _translated(self, node: ast.expr | str) -> ast.expr:  # noqa: C901, PLR0911, PLR0912, PLR0915 - one a form
        """Return an expression with options for the attributes of the arguments."""
        match node:
            case str():
                raise OutOfReachError(node)
            case ast.Attribute(value=ast.Name(id=room)) | ast.Name(id=room) if room == self.file.room:
                return node  # of another function's guard
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in self.settings:
                if self.file.room == "network" and node.lineno > self.set.get(name, node.lineno):
                    raise OutOfReachError(_CHANGED)
                return self._option(name)
            case ast.Call(func=ast.Name(id="isinstance"), args=[one, kinds]) if self.file.room == "network":
                listed = kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]
                names = {ast.unparse(kind) for kind in listed}
                names |= {"bool"} if "int" in names else set()
                whole = ast.Tuple([ast.Constant(name) for name in sorted(names)], ast.Load())
                return ast.Compare(ast.Call(ast.Name("kind"), [self._translated(one)], []), [ast.In()], [whole])
            case ast.Call(
                func=ast.Name(id="any" | "all"),
                args=[ast.GeneratorExp(elt=test, generators=[ast.comprehension(target=item, iter=items, ifs=[])])],
            ) if self.file.room == "network":
                self.known[ast.unparse(item)] = (ast.Name(_ITEM), [])
                inside = ast.comprehension(ast.Name(_ITEM), self._translated(items), [], 0)
                return ast.Call(node.func, [ast.GeneratorExp(self._translated(test), [inside])], [])
            case ast.Name(id=name) if name == _ITEM:
                return node
            case ast.ListComp(elt=ast.Attribute(attr="value"), generators=[ast.comprehension(iter=ast.Name(id=name))]):
                values = self.file.values_of(name)
                return ast.Tuple([ast.Constant(one) for one in values], ast.Load())
            case ast.Subscript(value=one, slice=ast.Constant(value=int())):
                return ast.Subscript(self._translated(one), node.slice, ast.Load())
            case ast.Attribute(value=ast.Name(id="self"), attr="feature_name"):
                return ast.Constant(self.feature)
            case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id=owner), key, *default]) if (
                owner in self.settings
            ):
                asked = str(getattr(self._translated(key), "value", ""))
                if asked not in self.file.options and default:
                    return self._translated(default[0])
                return self._option(asked)
            case ast.Call(func=ast.Name(id="hasattr"), args=[ast.Name(id=owner), key]) if owner in self.settings:
                return ast.Constant(getattr(self._translated(key), "value", "") in self.file.options)
            case ast.Call(func=ast.Name(id="bool"), args=[one]):
                return self._translated(one)
            case ast.Call(func=ast.Name(id="isinstance"), args=[one, ast.Name(id="str" | "list")]):
                return ast.Compare(self._translated(one), [ast.IsNot()], [ast.Constant(None)])
            case ast.Compare(
                left=ast.Attribute(value=ast.Name(id=owner), attr=name), ops=[sign], comparators=[ast.Constant(None)]
            ) if owner in self.settings and name in _DERIVED:
                parts: list[ast.expr] = [
                    ast.Compare(self._option(one), [sign], [ast.Constant(None)]) for one in _DERIVED[name]
                ]
                return ast.BoolOp(ast.And() if isinstance(sign, ast.Is) else ast.Or(), parts)
            case ast.Call(func=ast.Name(id="any" | "all" as word), args=[ast.Tuple(elts=items) | ast.List(elts=items)]):
                return self._translated(ast.BoolOp(ast.Or() if word == "any" else ast.And(), items))
            case ast.Call(func=ast.Name(id="len"), args=[one]):
                return ast.Call(ast.Name("len"), [self._translated(one)], [])
            case ast.Call(func=ast.Attribute(value=one, attr="lower"), args=[]):
                return ast.Call(ast.Name("lower"), [self._translated(one)], [])
            case ast.Name(id=name):
                value, guards = self.known.get(name, (f"the name {name}", []))
                if any(one is not other for one, other in zip_longest(guards, self.here[: len(guards)])):
                    raise OutOfReachError(_CONDITIONAL)
                return self._translated(value)
            case ast.Constant(value=None | bool() | int() | float() | str()):
                return node
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                return ast.Tuple([self._translated(one) for one in items], ast.Load())
            case ast.BoolOp(op=ast.And(), values=values):
                return ast.BoolOp(ast.And(), [self._translated(one) for one in values])
            case ast.BoolOp(op=ast.Or(), values=[one, ast.Constant(value=int()) as other]) if (
                self.file.room == "network"
            ):
                return ast.Call(ast.Name("either"), [self._translated(one), other], [])
            case ast.BoolOp(values=values):
                return self._either(values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = _negated(operand)
                if isinstance(inner, ast.UnaryOp):
                    return ast.UnaryOp(ast.Not(), self._translated(operand))
                return self._translated(inner)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self._translated(operand)
                if isinstance(inner, ast.Constant) and isinstance(inner.value, int | float):
                    return ast.Constant(-inner.value)
                return ast.UnaryOp(ast.USub(), inner)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if (
                name.removeprefix("origin_") in self.file.options
            ):
                return self._option(name.removeprefix("origin_"))  # put aside in pre_validate_args
            case ast.BinOp(left=left, op=sign, right=right) if isinstance(sign, _ARITHMETIC):
                return ast.BinOp(self._translated(left), sign, self._translated(right))
            case ast.Compare(left=left, ops=signs, comparators=others) if all(isinstance(one, _SIGNS) for one in signs):
                return ast.Compare(self._translated(left), signs, [self._translated(one) for one in others])
        raise OutOfReachError(_kind(node))

    def _either(self, values: Sequence[ast.expr]) -> ast.expr:
        """Return an alternative; parts that cannot be written are left out: the rest is still enough for a stop."""
        found, problem = [], OutOfReachError("")
        for one in values:
            try:
                found.append(self._translated(one))
            except OutOfReachError as error:
                problem = error
        if not found:
            raise problem
        return ast.BoolOp(ast.Or(), found) if len(found) > 1 else found[0]

    def _option(self, name: str) -> ast.expr:
        name = _FIELDS.get(name, name) if self.file.room == "argument" else name
        if name not in self.file.options:
            raise OutOfReachError(_COMPUTED)
        option = ast.Attribute(ast.Name(self.file.room), name)
        if name in _TURNED_OFF and self.file.room == "argument":
            size = ast.Attribute(ast.Name("argument"), _TURNED_OFF[name])
            return ast.BoolOp(ast.And(), [option, ast.Compare(size, [ast.Gt()], [ast.Constant(1)])])
        return option


def _kind(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return f"a call of {ast.unparse(node.func).rpartition('.')[2]}"
    return "an object of the framework" if isinstance(node, ast.Attribute) else f"Python's {type(node).__name__}"


def _negated(node: ast.expr) -> ast.expr:
    """Return the opposite of a condition, with ``not`` as far inside as possible."""
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.BoolOp(op=sign, values=values):
            other = ast.Or() if isinstance(sign, ast.And) else ast.And()
            return ast.BoolOp(other, [_negated(one) for one in values])
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _OPPOSITE:
            return ast.Compare(left, [_OPPOSITE[type(sign)]()], [right])
    return ast.UnaryOp(ast.Not(), node)


def _simplified(node: ast.expr) -> ast.expr:
    """Return a condition without constants in ``and``, ``or`` and ``not``."""
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _simplified(operand)
            return ast.Constant(not inner.value) if isinstance(inner, ast.Constant) else ast.UnaryOp(ast.Not(), inner)
        case ast.Compare(left=ast.Constant(), comparators=[ast.Constant() | ast.Tuple()]):
            return ast.Constant(bool(eval(ast.unparse(node), {"__builtins__": {}})))  # noqa: S307 - of constants only
        case ast.BoolOp(op=sign, values=values):
            decisive = isinstance(sign, ast.Or)
            found: dict[str, ast.expr] = {}
            for part in map(_simplified, values):
                for one in part.values if isinstance(part, ast.BoolOp) and type(part.op) is type(sign) else [part]:
                    if isinstance(one, ast.Constant):
                        if bool(one.value) is decisive:
                            return ast.Constant(decisive)
                    else:
                        found[ast.unparse(one)] = one
            parts = list(found.values())
            return ast.BoolOp(sign, parts) if len(parts) > 1 else parts[0] if parts else ast.Constant(not decisive)
    return node


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Return whether nothing after a block runs if the block runs."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    return isinstance(last, ast.Return | ast.Raise | ast.Continue)


def _stops(body: Sequence[ast.stmt]) -> bool:
    """Return whether a block stops the program."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return _stops(last.body) and _stops(last.orelse)
    return isinstance(last, ast.Raise)


def _text(node: ast.expr | None) -> str:
    """Return an exception's text, with ``{}`` for parts that are known at run time."""
    match node:
        case ast.Constant(value=str() as text):
            found = text
        case ast.JoinedStr(values=values):
            found = "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in values)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str() as text), attr="format")):
            found = text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            found = _text(left) + _text(right)
        case _:
            found = "" if node is None else "{}"
    found = " ".join(found.split())
    return found if len(found) <= _MOST_CHARACTERS else f"{found[: _MOST_CHARACTERS - 3]}..."
