"""Read the config classes of HyperParallel's Trainer from the sources of a copy: dataclasses by syntax tree, never imported.

Its loader (``config/resolver.py`` at 0e81ad83) fills one dataclass per section from the YAML. The root is the dataclass with the
fields ``model``, ``optimizer`` and ``training``; a field whose type is another dataclass is a section. A type from another package
allows any value.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ms_tune.diagnostics import KeyPath
from ms_tune.facts.keys import Key
from ms_tune.facts.query import REQUIRED
from ms_tune.job.definitions import SourceStamp, name_of, parse_source_file

Definitions: TypeAlias = "dict[str, list[tuple[str, ast.expr | ast.ClassDef]]]"

_ROOT = frozenset(("model", "optimizer", "training"))
_PLACE = "trainer/config"  # the folder of the Trainer's own classes
_DEEPEST = 8  # sections in sections, and aliases of aliases
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
    found: Definitions = {}
    for source in sources:
        for node in parse_source_file(source.path, b"dataclass", b"Literal").body:
            if isinstance(node, ast.ClassDef) and any(_is_dataclass(one) for one in node.decorator_list):
                found.setdefault(node.name, []).append((source.path, node))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found.setdefault(node.targets[0].id, []).append((source.path, node.value))
    classes = [name for name, all_ in found.items() if any(isinstance(one, ast.ClassDef) for _, one in all_)]
    roots = [name for name in classes if _ROOT.issubset(one for one, *_ in _fields_of(name, found))]
    if not roots:
        return None
    sections: dict[KeyPath, dict[str, Key]] = {}
    _add_section((), max(roots, key=lambda name: len(list(_fields_of(name, found)))), found, sections)
    return sections


def _is_dataclass(node: ast.expr) -> bool:
    return name_of(node.func if isinstance(node, ast.Call) else node) == "dataclass"


def _find(name: str, found: Definitions) -> ast.expr | ast.ClassDef | None:
    """Return the definition of a name; None if it is unknown or ambiguous, even in the folder of the Trainer's classes."""
    all_ = found.get(name, [])
    own = [one for one in all_ if _PLACE in Path(one[0]).as_posix()]
    among = own or all_
    return among[0][1] if len(among) == 1 else None


def _fields_of(name: str, found: Definitions, depth: int = 0) -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
    """Yield each field of a dataclass with its annotation and default, inherited ones first."""
    node = _find(name, found)
    if not isinstance(node, ast.ClassDef) or depth > _DEEPEST:
        return
    for base in node.bases:
        yield from _fields_of(name_of(base), found, depth + 1)
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            yield one.target.id, one.annotation, one.value


def _add_section(path: KeyPath, name: str, found: Definitions, sections: dict[KeyPath, dict[str, Key]]) -> None:
    section = sections[path] = {}
    for field, annotation, value in _fields_of(name, found):
        allowed, here = _read(annotation, found), (*path, field)
        section[field] = Key(
            path=here,
            name=field,
            types=allowed.types,
            choices=allowed.choices,
            default=_default_of(value),
            strict=True,
        )
        if allowed.section and len(here) < _DEEPEST:
            _add_section(here, allowed.section, found, sections)


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


def _read(node: ast.expr, found: Definitions, depth: int = 0) -> Annotation:  # noqa: PLR0911 - one return a form
    """Return the values that an annotation allows."""
    if depth > _DEEPEST:
        return _ANY
    match node:
        case ast.Constant(value=None):
            return Annotation(("null",))
        case ast.Constant(value=str(text)):  # an annotation in quotes
            with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                return _read(ast.parse(text, mode="eval").body, found, depth + 1)
        case ast.BinOp(op=ast.BitOr()):
            return _unite(_read(one, found, depth + 1) for one in (node.left, node.right))
        case ast.Subscript():
            return _read_generic(node, found, depth)
        case ast.Name() | ast.Attribute():
            name = name_of(node)
            if name in _TYPES:
                return Annotation((_TYPES[name],))
            defined = _find(name, found)
            if isinstance(defined, ast.ClassDef):
                return Annotation(("dict",), section=name)
            return _ANY if defined is None else _read(defined, found, depth + 1)
    return _ANY


def _read_generic(node: ast.Subscript, found: Definitions, depth: int) -> Annotation:
    name = name_of(node.value)
    inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Literal":
        values = tuple(one.value for one in inner if isinstance(one, ast.Constant))
        types = dict.fromkeys("null" if one is None else type(one).__name__ for one in values)
        return Annotation(tuple(types), values) if len(values) == len(inner) else _ANY
    if name in ("Optional", "Union"):
        parts = [_read(one, found, depth + 1) for one in inner]
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
