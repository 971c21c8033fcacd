"""Read the config classes of HyperParallel's Trainer from the sources of a copy: dataclasses by syntax tree, never imported.

Its loader (``config/resolver.py`` at 0e81ad83) fills one dataclass per section from the YAML. The root is the dataclass with the
fields ``model``, ``optimizer`` and ``training``; a field whose type is another dataclass is a section. A type from another package
allows any value.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ms_tune.diagnostics import KeyPath
from ms_tune.facts.keys import Key
from ms_tune.facts.query import REQUIRED
from ms_tune.job.definitions import SourceStamp, name_of, parse_source_file

_ROOT = frozenset(("model", "optimizer", "training"))
_PLACE = "trainer/config"  # the folder of the Trainer's own classes
_DEEPEST = 8  # sections in sections, and annotations in annotations
_MOST_CLASSES, _MOST_SECTIONS = 2000, 500  # more are no config classes
_TYPES = {
    **{name: name for name in ("int", "float", "str", "bool")},
    **dict.fromkeys(("list", "List", "Sequence", "tuple", "Tuple"), "list"),
    **dict.fromkeys(("dict", "Dict", "Mapping", "MutableMapping"), "dict"),
}


class Annotation(NamedTuple):
    """The values that an annotation allows."""

    types: tuple[str, ...] = ()  # as in :class:`ms_tune.facts.keys.Key`; empty for any
    choices: tuple[object, ...] = ()
    section: str = ""  # the dataclass, if it is one


_ANY = Annotation()


def read_config_fields(sources: Iterable[SourceStamp]) -> Mapping[KeyPath, Mapping[str, Key]] | None:
    """Return the fields of each section by its path (``()`` is the root); None without a root class."""
    classes = _Classes()
    for source in sorted(sources, key=lambda one: _PLACE not in one.path):
        for node in parse_source_file(source.path, b"dataclass", b"Literal").body:
            if isinstance(node, ast.ClassDef) and any(_is_dataclass(one) for one in node.decorator_list):
                classes.found.setdefault(node.name, []).append((source.path, node))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                classes.found.setdefault(node.targets[0].id, []).append((source.path, node.value))
    names = [name for name in classes.found if isinstance(classes.find(name), ast.ClassDef)]
    roots = [name for name in names[:_MOST_CLASSES] if classes.fields_of(name).keys() >= _ROOT]
    if not roots:
        return None
    classes.add_section((), max(roots, key=lambda name: len(classes.fields_of(name))))
    return classes.sections


def _is_dataclass(node: ast.expr) -> bool:
    return name_of(node.func if isinstance(node, ast.Call) else node) == "dataclass"


class _Classes:
    """The definitions of a package; each is read once, so that the time is bounded however they refer to each other."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[str, ast.expr | ast.ClassDef]]] = {}  # by name, each with its file
        self.sections: dict[KeyPath, dict[str, Key]] = {}
        self._fields: dict[str, dict[str, tuple[ast.expr, ast.expr | None]]] = {}
        self._aliases: dict[str, Annotation] = {}

    def find(self, name: str) -> ast.expr | ast.ClassDef | None:
        """Return the definition of a name; None if it is unknown, or ambiguous even in the folder of the Trainer's classes."""
        everywhere = self.found.get(name, [])
        own = [one for one in everywhere if _PLACE in Path(one[0]).as_posix()]
        among = own or everywhere
        return among[0][1] if len(among) == 1 else None

    def fields_of(self, name: str, depth: int = 0) -> Mapping[str, tuple[ast.expr, ast.expr | None]]:
        """Return the annotation and the default of each field of a dataclass, inherited ones first."""
        if name not in self._fields:
            fields = self._fields[name] = {}  # a class that inherits from itself ends here
            node = self.find(name)
            if isinstance(node, ast.ClassDef) and depth < _DEEPEST:
                for base in node.bases:
                    fields.update(self.fields_of(name_of(base), depth + 1))
                for one in node.body:
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                        fields[one.target.id] = one.annotation, one.value
        return self._fields[name]

    def add_section(self, path: KeyPath, name: str) -> None:
        """Add the fields of a dataclass as a section, and the sections in it."""
        section = self.sections[path] = {}
        for field, (annotation, value) in self.fields_of(name).items():
            allowed, here = self._read(annotation, 0), (*path, field)
            limits = {"types": allowed.types, "choices": allowed.choices, "default": _default_of(value)}
            section[field] = Key(path=here, name=field, strict=True, **limits)
            if allowed.section and len(here) < _DEEPEST and len(self.sections) < _MOST_SECTIONS:
                self.add_section(here, allowed.section)

    def _read(self, node: ast.expr, depth: int) -> Annotation:
        match node:
            case ast.Constant(value=None):
                return Annotation(("null",))
            case ast.Constant(value=str(text)):  # an annotation in quotes
                with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                    return self._read(ast.parse(text, mode="eval").body, depth + 1) if depth < _DEEPEST else _ANY
            case ast.BinOp(op=ast.BitOr()) if depth < _DEEPEST:
                return _unite(self._read(one, depth + 1) for one in (node.left, node.right))
            case ast.Subscript() if depth < _DEEPEST:
                return self._read_generic(node, depth)
            case ast.Name() | ast.Attribute():
                return self._read_name(name_of(node), depth)
        return _ANY

    def _read_name(self, name: str, depth: int) -> Annotation:
        if name in _TYPES:
            return Annotation((_TYPES[name],))
        defined = self.find(name)
        if isinstance(defined, ast.ClassDef):
            return Annotation(("dict",), section=name)
        if name not in self._aliases:
            self._aliases[name] = _ANY  # an alias of itself ends here
            self._aliases[name] = _ANY if defined is None else self._read(defined, depth + 1)
        return self._aliases[name]

    def _read_generic(self, node: ast.Subscript, depth: int) -> Annotation:
        name = name_of(node.value)
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name == "Literal":
            values = tuple(one.value for one in inner if isinstance(one, ast.Constant))
            types = dict.fromkeys("null" if one is None else type(one).__name__ for one in values)
            return Annotation(tuple(types), values) if len(values) == len(inner) else _ANY
        if name in ("Optional", "Union"):
            parts = [self._read(one, depth + 1) for one in inner]
            return _unite([*parts, Annotation(("null",))] if name == "Optional" else parts)
        return Annotation((_TYPES[name],)) if name in _TYPES else _ANY


def _unite(annotations: Iterable[Annotation]) -> Annotation:
    """Return the values that any of several annotations allows."""
    parts = list(annotations)
    if not all(one.types for one in parts):
        return _ANY
    sections = [one.section for one in parts if one.section]
    types = tuple(dict.fromkeys(name for one in parts for name in one.types))
    listed = [one.choices for one in parts if one.types != ("null",)]
    choices = tuple(value for some in listed for value in some) if all(listed) else ()
    return Annotation(types, choices, sections[0] if len(sections) == 1 else "")


def _default_of(value: ast.expr | None) -> object:
    """Return the default of a field: None unless it is a literal, and :data:`REQUIRED` without one."""
    if value is None:
        return REQUIRED
    words = {one.arg: one.value for one in value.keywords} if isinstance(value, ast.Call) else {}
    if isinstance(value, ast.Call) and name_of(value.func) == "field":
        if not words.keys() & {"default", "default_factory"} and "init" not in words:
            return REQUIRED
        value = words.get("default", value)
    return value.value if isinstance(value, ast.Constant) else None


def read_target_arguments(root: Path, target: str) -> frozenset[str] | None:
    """Return the arguments of a function, class or class method of a package; None if it takes any, or they are unknown.

    Imports from other modules of the package are followed, base classes are not.
    """
    for _ in range(_DEEPEST):
        parts = target.split(".")
        for count in range(len(parts) - 1, 0, -1):
            folder = root.joinpath(*parts[:count])
            file = next((one for one in (folder.with_suffix(".py"), folder / "__init__.py") if one.is_file()), None)
            if file is not None:
                break
        else:
            return None
        tree, names = parse_source_file(str(file), b"def ", b"import "), parts[count:]
        package = parts[: count - (file.name != "__init__.py")]
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                module = (
                    [*package[: len(package) + 1 - node.level], *(node.module or "").split(".")]
                    if node.level
                    else [node.module or ""]
                )
                found = next((one.name for one in node.names if (one.asname or one.name) == names[0]), "")
                if found:
                    target = ".".join([*filter(None, module), found, *names[1:]])
                    break
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == names[0]:
                return _arguments_of(node, names[1:])
        else:
            return None
    return None


def _arguments_of(node: ast.FunctionDef | ast.ClassDef, names: list[str]) -> frozenset[str] | None:
    if isinstance(node, ast.ClassDef):
        name = names[0] if names else "__init__"
        method = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == name), None)
        return None if method is None or len(names) > 1 else _arguments_of(method, ["self"])
    given, decorators = node.args, {name_of(one) for one in node.decorator_list}
    if given.kwarg is not None or not decorators <= {"classmethod", "staticmethod"}:
        return None
    is_bound = names == ["self"] and "staticmethod" not in decorators
    return frozenset(one.arg for one in [*given.posonlyargs, *given.args][is_bound:]) | {
        one.arg for one in given.kwonlyargs
    }
