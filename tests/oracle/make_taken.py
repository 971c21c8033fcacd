"""Find the keyword arguments that MindFormers' registered classes accept, and the words that its data sets read from a config.

Both are read from the wheels' syntax trees: nothing is imported.
"""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

# The kinds whose sections are handed to the class as keyword arguments (`MindFormerRegister.get_instance_from_cfg`).
KINDS = ("callback", "lr_schedule", "optimizer", "runner_wrapper")
_OTHERS = (
    "/pynative/",
    "/experimental/",
    "/research/",
)  # classes of the same names that the static graph does not build
_OF_DATA = ("mindformers/dataset/", "mindformers/trainer/")
_SECTIONS = ("config", "data_loader", "dataset", "dataloader", "kwargs")  # endings of section names
_ASKS = ("get", "pop", "setdefault", "getattr", "hasattr")
_READS = ("get", "pop", "setdefault")


class Parameters(NamedTuple):
    """The parameters of a class: their names, whether others are passed on, and which are switches."""

    names: frozenset[str]
    free: bool
    switches: frozenset[str]


def arguments(path: Path, registered: Mapping[str, frozenset[str]]) -> dict[str, dict[str, Any]]:
    """Return the parameters of the registered classes of a wheel, by kind and class: ``{"takes": [...], "free": bool, "switches": [...]}``.

    A class of MindSpore, or with a constructor of MindSpore, is left out.
    """
    classes = _classes(path)
    found: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        found[kind] = {}
        for name in sorted(registered[kind] & classes.keys()):
            taken = [one for one in (_read_parameters(node, classes) for node in classes[name]) if one is not None]
            if len(taken) == len(classes[name]):  # all classes with this name are known, but not which one is used
                takes = sorted(frozenset().union(*(one.names for one in taken)))
                switches = sorted(frozenset.intersection(*(one.switches for one in taken)))
                found[kind][name] = {"takes": takes, "free": any(one.free for one in taken), "switches": switches}
    return found


def dataset_words(path: Path) -> list[str]:
    """Return all words with which the code of data sets may read a section: keys of ``config`` or ``kwargs``, and parameters."""
    found: set[str] = set()
    with zipfile.ZipFile(path) as wheel:
        for file in wheel.namelist():
            if file.startswith(_OF_DATA) and file.endswith(".py"):
                for node in ast.walk(ast.parse(wheel.read(file))):
                    found |= set(_words(node))
    return sorted(word for word in found if word.isidentifier() and not word.startswith("_"))


def _words(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):  # a field of a dataclass
        yield node.target.id
    elif isinstance(node, ast.Attribute) and (_name(node.value) or "").endswith(_SECTIONS):
        yield node.attr
    asked: list[ast.expr] = []
    if isinstance(node, ast.Call) and (_name(node.func) or "") in _ASKS:
        asked = node.args[:2]
    elif isinstance(node, ast.Subscript):
        asked = [node.slice]
    elif isinstance(node, ast.Compare):
        asked = [node.left]
    yield from (one.value for one in asked if isinstance(one, ast.Constant) and isinstance(one.value, str))


def _classes(path: Path) -> dict[str, list[ast.ClassDef]]:
    found: dict[str, list[ast.ClassDef]] = {}
    with zipfile.ZipFile(path) as wheel:
        for file in wheel.namelist():
            if file.startswith("mindformers/") and file.endswith(".py") and not any(part in file for part in _OTHERS):
                for node in ast.walk(ast.parse(wheel.read(file))):
                    if isinstance(node, ast.ClassDef):
                        found.setdefault(node.name, []).append(node)
    return found


def _read_parameters(
    node: ast.ClassDef, classes: Mapping[str, list[ast.ClassDef]], depth: int = 5
) -> Parameters | None:
    """Return the parameters of a class, including those of base classes to which it passes the rest; None if the wheel does not show it."""
    methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
    makers = [methods[name] for name in ("__new__", "__init__") if name in methods]
    above = [_name(base) or "" for base in node.bases]
    known = [classes[name][0] for name in above if len(classes.get(name, ())) == 1]
    if not makers:
        return _read_parameters(known[0], classes, depth - 1) if len(known) == len(above) == 1 and depth else None
    names: set[str] = set()
    switches: set[str] = set()
    free = True
    for maker in makers:
        own = maker.args
        names |= {one.arg for one in (*own.posonlyargs, *own.args, *own.kwonlyargs)} | _read(maker)
        switches |= set(_switches(own))
        free &= own.kwarg is not None
    if free and _hands_on(makers):
        upper = _read_parameters(known[0], classes, depth - 1) if len(known) == len(above) == 1 and depth else None
        if upper is None:
            return None
        names |= upper.names
        switches |= upper.switches
        free = upper.free
    return Parameters(frozenset(names) - {"self", "cls"}, free, frozenset(switches))


def _switches(own: ast.arguments) -> Iterator[str]:
    """Return the arguments whose default is True or False."""
    every = [*own.posonlyargs, *own.args]
    given = [*zip(every[len(every) - len(own.defaults) :], own.defaults, strict=True)]
    for argument, default in (*given, *zip(own.kwonlyargs, own.kw_defaults, strict=True)):
        if isinstance(default, ast.Constant) and isinstance(default.value, bool):
            yield argument.arg


def _hands_on(makers: list[ast.FunctionDef]) -> bool:
    """Return whether a constructor passes unknown arguments on: ``super().__init__(**kwargs)``."""
    calls = (node for maker in makers for node in ast.walk(maker) if isinstance(node, ast.Call))
    return any(keyword.arg is None for call in calls for keyword in call.keywords)


def _read(maker: ast.FunctionDef) -> set[str]:
    """Return the names that a constructor reads from its ``kwargs``."""
    rest = maker.args.kwarg.arg if maker.args.kwarg else None
    found: set[str] = set()
    for node in ast.walk(maker):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _READS:
            asked = node.args[:1] if _name(node.func.value) == rest else []
        elif isinstance(node, ast.Subscript) and _name(node.value) == rest:
            asked = [node.slice]
        elif isinstance(node, ast.Compare) and any(_name(one) == rest for one in node.comparators):
            asked = [node.left]
        else:
            continue
        found |= {one.value for one in asked if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return found


def _name(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
