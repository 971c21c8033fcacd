"""Find the releases of MindFormers that know each key of the key tables, from the sources in their wheels.

Static graph: the template (``tools/register/template.py``) has a class for each section, which refuses other keys if it
is strict; the top level accepts those of ``GeneralConfig``, the names of the sections, and the keys that
``MFContextConfig`` (``config_args.py``) takes from there and from ``context``. A top-level key that code outside the
template reads counts as known from the first release whose sources contain its name. Dynamic graph: the dataclasses of
``pynative/config/config.py``. For keys of a model's own section see the classes of models in ``models.json``.

MindSpore reads the rest of ``context`` and ``parallel``, and user-selected classes read open sections: the wheels of
MindFormers do not contain these keys, nor those of the one release of MindSpeed-Core-MS.
"""

from __future__ import annotations

import ast
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ms_tune.facts.query import REQUIRED

COLUMNS = [
    "path",
    "type",
    "default",
    "choices",
    "since",
    "until",
    "state",
    "read_by",
    "strict",
    "above",
    "least",
    "most",
    "en",
    "zh",
]
MODEL = "model.model_config."  # models.json contains these keys
_NONE = object()


def _tree(wheel: Path, *paths: str) -> ast.Module:
    """Return the first of several sources that a wheel contains."""
    with zipfile.ZipFile(wheel) as archive:
        there = {*archive.namelist()}
        return ast.parse(archive.read(next(path for path in paths if path in there)))


def _classes(tree: ast.Module) -> dict[str, dict[str, ast.expr | None]]:
    """Return the assignments in class bodies; a field that is only declared has none."""
    found: dict[str, dict[str, ast.expr | None]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            plain = {ast.unparse(one.targets[0]): one.value for one in node.body if isinstance(one, ast.Assign)}
            typed = {ast.unparse(one.target): one.annotation for one in node.body if isinstance(one, ast.AnnAssign)}
            found[node.name] = {**plain, **typed}
    return found


def _public(names: Mapping[str, object]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def static(wheel: Path) -> tuple[set[str], set[str]]:
    """Return the keys that a release knows, and the sections (ending with a dot) that accept no others."""
    template = _tree(wheel, "mindformers/tools/register/template.py")
    classes = _classes(template)
    (table,) = (
        node.value
        for node in template.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CONFIG_NAME_TO_CLASS"
    )
    assert isinstance(table, ast.Dict)
    sections = {
        ast.literal_eval(key): ast.unparse(value) for key, value in zip(table.keys, table.values, strict=True) if key
    }
    arguments = _tree(wheel, "mindformers/core/config_args.py", "mindformers/trainer/config_args.py")
    listed = _classes(arguments)["MFContextConfig"]["_support_kwargs"]
    assert listed is not None
    around = set(ast.literal_eval(listed))
    general = _public(classes[sections.pop("general_config")])
    known = {*sections, *general, *around, *(f"context.{name}" for name in around)}
    strict = set()
    bases = {
        node.name: ast.unparse(node.bases[0]) for node in template.body if isinstance(node, ast.ClassDef) and node.bases
    }
    for section, kind in sections.items():
        known |= {f"{section}.{name}" for name in _public(classes[kind])}
        if bases[kind] == "Config" and "_raise_error_for_unexpected_key" not in classes[kind]:
            strict.add(f"{section}.")
    return known, strict


def dynamic(wheel: Path) -> set[str]:
    """Return the keys that a release of the dynamic graph knows."""
    classes = _classes(_tree(wheel, "mindformers/pynative/config/config.py"))

    def fields(kind: str, before: str) -> Iterator[str]:
        for name, annotation in classes[kind].items():
            if annotation is None or name == "allow_extra":
                continue
            yield before + name
            inner = [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]
            for one in inner:
                if one in classes:
                    yield from fields(one, f"{before}{name}." + ("*." if "List" in inner else ""))

    return set(fields("TrainConfig", ""))


def mindspeed(wheel: Path) -> dict[str, object]:
    """Return the keys of MindSpeed-Core-MS's classes with their defaults, from their copy in MindFormers 1.6."""
    found: dict[str, object] = {}
    for node in _tree(wheel, "mindformers/experimental/parallel_core/pynative/config.py").body:
        if not isinstance(node, ast.ClassDef):
            continue
        named = [
            one.value
            for one in node.body
            if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "config_name"
        ]
        made = [one.args for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
        for name, arguments in zip(map(ast.literal_eval, named), made, strict=False):
            names = [one.arg for one in arguments.args[1:]]
            defaults = [*[REQUIRED] * (len(names) - len(arguments.defaults)), *map(_value, arguments.defaults)]
            found |= {f"{name}.{key}": default for key, default in zip(names, defaults, strict=True)}
    return found


def _value(node: ast.expr) -> object:
    """Return a default; a newly created object counts as None."""
    return None if isinstance(node, ast.Call) else ast.literal_eval(node)


@cache
def mentioned(wheel: Path) -> frozenset[str]:
    """Return every word in the sources of a release."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith("mindformers/") and name.endswith(".py")]
        return frozenset(word for name in names for word in re.findall(r"\w+", archive.read(name).decode()))


def decorated(wheel: Path) -> dict[str, set[str]]:
    """Return the names under which decorators register classes, by kind; those of Mcore classes follow ``core_``."""
    found: dict[str, set[str]] = {}
    with zipfile.ZipFile(wheel) as archive:
        sources = [archive.read(name) for name in archive.namelist() if name.endswith(".py")]
    for source in sources:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # they have escapes that are none
            warnings.simplefilter("ignore", DeprecationWarning)
            tree = ast.parse(source if b"MindFormerRegister.register(" in source else b"")
        for node in (one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "MindFormerRegister.register":
                    named = {one.arg: one.value for one in mark.keywords}
                    named |= dict(zip(("module_type", "alias"), mark.args, strict=False))
                    alias = named.get("alias")
                    core = "legacy" in named and not ast.literal_eval(named["legacy"])
                    kind = ast.unparse(named["module_type"]).rpartition(".")[2].lower()
                    name = ast.literal_eval(alias) if alias else node.name
                    found.setdefault(f"core_{kind}" if core else kind, set()).add(name)
    return found


def releases_by_key(name: str, releases: Mapping[str, Path], paths: Iterable[str]) -> dict[str, list[str]]:
    """Return the releases that know each key of a table; keys that the wheels do not contain are left out."""
    if name == "keys_mindformers-pynative":
        fields = {release: dynamic(wheel) for release, wheel in releases.items()}
        found = {path: [release for release, known in fields.items() if path in known] for path in paths}
        return {path: known for path, known in found.items() if known}
    each = {release: static(wheel) for release, wheel in releases.items()}
    found = {}
    for path in paths:
        known = [release for release, (keys, _) in each.items() if path in keys]
        if not known and "." not in path:  # read outside the template, if at all
            later = [release for release, wheel in releases.items() if path in mentioned(wheel)]
            known = later if len(later) < len(releases) else []
        if known or all(path.startswith(tuple(sections)) for _, sections in each.values()):
            found[path] = known
    return found


def dated(name: str, content: dict[str, Any], releases: Mapping[str, Path]) -> dict[str, Any]:
    """Return a key table with ``since`` and ``until`` from the wheels; all else is unchanged."""
    found = releases_by_key(
        name, releases, [row["path"] for row in content["keys"] if not row["path"].startswith(MODEL)]
    )
    rows = []
    for row in content["keys"]:
        columns = {**row}
        if row["path"] in found:
            columns |= span(row["path"], found[row["path"]], list(releases))
        rows.append({column: columns[column] for column in COLUMNS if columns.get(column, _NONE) is not _NONE})
    return {**content, "keys": rows}


def span(path: str, known: list[str], releases: list[str]) -> dict[str, Any]:
    """Return the columns ``since`` and ``until`` of a key."""
    if not known or known != releases[releases.index(known[0]) : releases.index(known[-1]) + 1]:
        raise ValueError((path, known))  # a key that no release has, or with a gap, is an error
    first, last = known[0], known[-1]
    return {"since": _NONE if first == releases[0] else first, "until": _NONE if last == releases[-1] else last}
