"""Find the parser arguments and registered classes that Python sources define, from syntax trees; nothing is imported."""

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

from ms_tune.facts.keys import ANY_PARAMETER
from ms_tune.source.files import read_bytes

INSTALLED_FOLDERS = ("site-packages", "dist-packages")  # folders of packages that are unrelated to each other
_SKIPPED_FOLDERS = ("__pycache__", "node_modules", *INSTALLED_FOLDERS)
_LARGEST = 1 << 20  # bytes per file
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


def read_source_text(file: Path) -> str:
    """Return the text of a file; empty if it is too large or cannot be read."""
    return _read_bytes(file).decode("utf-8", "replace")


def _read_bytes(file: Path) -> bytes:
    try:
        content = read_bytes(file, _LARGEST) if file.is_file() else b""
    except OSError:
        return b""
    return content if len(content) <= _LARGEST else b""


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
    return frozenset(name.decode() for name in _CLASS.findall(_read_bytes(Path(source.path))))


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
    content = _read_bytes(Path(path))
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
