"""Read the definitions in a repository's sources, from their syntax trees: arguments, classes, configs as dataclasses; nothing is imported."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ms_tune.diagnostics import KeyPath
from ms_tune.facts.keys import ANY_PARAMETER, Key
from ms_tune.facts.query import REQUIRED
from ms_tune.source.files import read_source

INSTALLED_FOLDERS = ("site-packages", "dist-packages")  # folders of packages that are unrelated to each other
_SKIPPED_FOLDERS = ("__pycache__", "node_modules", *INSTALLED_FOLDERS)
_MOST_BYTES, _MOST_FILES, _MOST_ENTRIES, _DEEPEST = 1 << 26, 5000, 100_000, 16
_MOST_READ = 4 * _MOST_FILES  # sources whose definitions are cached

# The names of the kinds of `ms_tune.facts.keys` in the frameworks' registers: `MindFormerModuleType` in
# `mindformers/tools/register/register.py` (0.3 to 2.1); `ModuleType` in `mindspeed_ms/tools/register` (Core-MS r0.1.0) for
# configs of Core-MS, and in `mindformers/experimental/parallel_core` (1.3 to 1.5).
_ALIKE = ("optimizer", "trainer", "callback", "dataset", "dataset_loader", "metric", "processor", "tokenizer", "config")
_KINDS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "MindFormerModuleType": {
            **{kind.upper(): kind for kind in _ALIKE},
            "LR": "lr_schedule",
            "WRAPPER": "runner_wrapper",
            "MODELS": "model",
        },
        "ModuleType": {"OPTIMIZER": "library_optimizer", "ACTIVATION_FUNC": "activation", "LOSS_FUNC": "loss"},
    }
)
_CLASS = re.compile(rb"^[ \t]*class[ \t]+([A-Za-z_][A-Za-z0-9_]*)", re.MULTILINE)
_REGISTER_CALLS = ("register", "register_cls", "register_decorator")


class SourceStamp(NamedTuple):
    """A Python file with its size and modification time; an equal stamp means equal definitions."""

    path: str
    size: int
    modified: int  # nanoseconds


def list_entries(folder: Path | str) -> list[os.DirEntry[str]]:
    """List the files and folders in a folder, without symbolic links."""
    try:
        with os.scandir(folder) as entries:
            found = (one for one in islice(entries, _MOST_ENTRIES) if not one.is_symlink())
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []


def list_sources(folder: Path) -> Iterator[SourceStamp]:
    """Yield the Python files below a folder, within limits; without hidden folders, installed packages and symbolic links."""
    waiting = [] if folder.is_symlink() else [(str(folder), 0)]
    entries = files = size = 0
    while waiting and entries < _MOST_ENTRIES:
        place, depth = waiting.pop()
        entries += 1
        for entry in list_entries(place):
            entries += 1
            if entry.is_dir():
                if depth < _DEEPEST and entry.name not in _SKIPPED_FOLDERS and not entry.name.startswith("."):
                    waiting.append((entry.path, depth + 1))
            elif entry.name.endswith(".py") and entry.is_file():
                source = stamp_source(entry)
                files, size = files + 1, size + source.size
                if files > _MOST_FILES or size > _MOST_BYTES:
                    return
                yield source


def stamp_source(entry: os.DirEntry[str]) -> SourceStamp:
    """Return the stamp of a file in a folder listing."""
    about = entry.stat()
    return SourceStamp(entry.path, about.st_size, about.st_mtime_ns)


class OwnArgument(NamedTuple):
    """A parser argument as a source defines it."""

    name: str
    choices: tuple[str, ...] | None  # None if it accepts any value
    type: str  # the name of the converter: `int`, `float`, `str`, a function


class ArgumentDefinitions(NamedTuple):
    """The parser arguments that a source defines or extends."""

    defined: tuple[OwnArgument, ...] = ()
    further: tuple[tuple[str, str], ...] = ()  # each argument with a choice that it adds
    is_complete: bool = True  # whether the names of all its arguments are known without running it


@lru_cache(maxsize=_MOST_READ)
def read_arguments(source: SourceStamp) -> ArgumentDefinitions:
    """Find calls of ``argparse``'s ``add_argument`` and MindSpeed's ``add_parser_argument_choices_value`` (2.0 to 26.1)."""
    tree = parse_source_file(source.path, b"add_argument", b"add_parser_argument_choices_value")
    constants = {
        target.id: one.value
        for one in tree.body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    defined: list[OwnArgument] = []
    further: list[tuple[str, str]] = []
    is_complete = True
    for statement in _statements(tree):
        call = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
        if not isinstance(call, ast.Call):
            continue
        if name_of(call.func) == "add_argument":
            words = {word.arg: word.value for word in call.keywords}
            named, kind = words.get("choices"), words.get("type", ast.Name("str"))
            choices = _read_values(constants.get(name_of(named), named) if isinstance(named, ast.Name) else named)
            defined += [
                OwnArgument(name, choices, name_of(kind)) for name in _texts(call.args) if name.startswith("--")
            ]
            is_complete = is_complete and bool(_texts(call.args))
        elif name_of(call.func) == "add_parser_argument_choices_value":
            texts = _texts([*call.args, *(word.value for word in call.keywords)])
            further += [(texts[0], texts[1])] if len(texts) == 2 else []  # noqa: PLR2004 - the argument and the choice
    return ArgumentDefinitions(tuple(defined), tuple(further), is_complete)


@lru_cache(maxsize=_MOST_READ)
def read_class_names(source: SourceStamp) -> frozenset[str]:
    """Return the names of all classes that a source defines, registered or not."""
    return frozenset(name.decode() for name in _CLASS.findall(read_source(Path(source.path))))


@lru_cache(maxsize=_MOST_READ)
def read_classes(source: SourceStamp) -> tuple[tuple[str, str, frozenset[str] | None], ...]:
    """Find the kind, name and parameters of each class that a source registers, by a decorator or by a call with a class.

    The calls are ``MindFormerRegister.register`` and ``register_cls`` (MindFormers 0.3 to 2.1), ``ModuleRegistry.register``
    and ``register_decorator`` (MindSpeed-Core-MS r0.1.0).
    """
    found: list[tuple[str, str, frozenset[str] | None]] = []
    parameters: dict[str, frozenset[str] | None] = {}  # of each class named in this file
    for node in _statements(parse_source_file(source.path, *(f"{name}.".encode() for name in _KINDS))):
        if isinstance(node, ast.ImportFrom):
            parameters |= {alias.asname or alias.name: None for alias in node.names}
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            parameters[node.name] = _parameters_of(node)
            for call in node.decorator_list:
                found += [(*names, parameters[node.name]) for names in _registered_as(call, node.name)]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            words = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "register_class")]
            if words and (isinstance(words[0], ast.Attribute) or name_of(words[0]) in parameters):
                name = name_of(words[0])
                found += [(*names, parameters.get(name)) for names in _registered_as(call, name)]
    return tuple(found)


def _registered_as(call: ast.expr, name: str) -> Iterator[tuple[str, str]]:
    if not isinstance(call, ast.Call) or name_of(call.func) not in _REGISTER_CALLS:
        return
    words = {word.arg: word.value for word in call.keywords}
    for one in (*call.args, *words.values()):
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id in _KINDS:
            kind = _KINDS[one.value.id].get(one.attr, "")
            kinds = [f"core_{kind}", kind] if kind in ("model", "config") else [kind] * bool(kind)
            legacy = words.get("legacy", ast.Constant(True))  # noqa: FBT003 - the default of the register
            if len(kinds) > 1 and isinstance(legacy, ast.Constant):  # otherwise only known at run time
                kinds = [kinds[bool(legacy.value)]]
            given = _texts([*call.args, *(words[key] for key in ("alias", "item_name") if key in words)])
            names = [*(given[:1] or [name]), *(_read_values(words.get("search_names")) or ())]
            yield from ((kind, name) for kind in kinds for name in names)


def _parameters_of(node: ast.ClassDef | ast.FunctionDef) -> frozenset[str] | None:
    for one in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(one, ast.FunctionDef) and one.name == "__init__":
            names = (*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs)
            return frozenset([ANY_PARAMETER] * bool(one.args.kwarg) + [name.arg for name in names[1:]])
    return None


def parse_source_file(path: str, *words: bytes) -> ast.Module:
    """Parse a source that contains any of these words; return an empty tree for others and for invalid Python."""
    content = read_source(Path(path))
    if any(word in content for word in words):
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes and the like are left to other linters
            return ast.parse(content)
    return ast.Module([], [])


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [*reversed(tree.body)]
    while waiting:
        node = waiting.pop()
        yield node
        for field in ("finalbody", "orelse", "handlers", "body"):
            waiting += reversed(getattr(node, field, ()))


def name_of(node: ast.AST | None) -> str:
    """Return ``c`` for ``c`` and ``a.b.c``; an empty text for other expressions."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _texts(nodes: Iterable[ast.expr]) -> list[str]:
    return [one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def _read_values(node: ast.AST | None) -> tuple[str, ...] | None:
    """Return the values of a literal text or list; None for anything else."""
    try:
        values = ast.literal_eval(node) if isinstance(node, ast.expr) else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(values, str):
        return (values,)
    return tuple(map(str, values)) if isinstance(values, (list, tuple, set)) else None


_ROOT = frozenset(("model", "optimizer", "training"))
_PLACE = "trainer/config"  # the folder of the Trainer's own classes
_DEEPEST_SECTION = 8  # sections in sections, and annotations in annotations
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
    """Return the fields of each section of HyperParallel's configs by its path (``()`` is the root); None without a root class.

    Its loader (``config/resolver.py`` at 0e81ad83) fills one dataclass per section: the root has the fields ``model``, ``optimizer``
    and ``training``, a field whose type is another dataclass is a section, a type from another package allows any value.
    """
    classes = _Classes()
    for source in sorted(sources, key=lambda one: _PLACE not in one.path):
        for node in parse_source_file(source.path, b"dataclass", b"Literal").body:
            decorators = [getattr(one, "func", one) for one in getattr(node, "decorator_list", ())]
            if isinstance(node, ast.ClassDef) and "dataclass" in map(name_of, decorators):
                classes.found.setdefault(node.name, []).append((source.path, node))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                classes.found.setdefault(node.targets[0].id, []).append((source.path, node.value))
    names = [name for name in classes.found if isinstance(classes.find(name), ast.ClassDef)]
    roots = [name for name in names[:_MOST_CLASSES] if classes.fields_of(name).keys() >= _ROOT]
    if not roots:
        return None
    classes.add_section((), max(roots, key=lambda name: len(classes.fields_of(name))))
    return classes.sections


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
            if isinstance(node, ast.ClassDef) and depth < _DEEPEST_SECTION:
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
            if allowed.section and len(here) < _DEEPEST_SECTION and len(self.sections) < _MOST_SECTIONS:
                self.add_section(here, allowed.section)

    def _read(self, node: ast.expr, depth: int) -> Annotation:
        match node:
            case ast.Constant(value=None):
                return Annotation(("null",))
            case ast.Constant(value=str(text)):  # an annotation in quotes
                with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                    return (
                        self._read(ast.parse(text, mode="eval").body, depth + 1) if depth < _DEEPEST_SECTION else _ANY
                    )
            case ast.BinOp(op=ast.BitOr()) if depth < _DEEPEST_SECTION:
                return _unite(self._read(one, depth + 1) for one in (node.left, node.right))
            case ast.Subscript() if depth < _DEEPEST_SECTION:
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
    for _ in range(_DEEPEST_SECTION):
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
