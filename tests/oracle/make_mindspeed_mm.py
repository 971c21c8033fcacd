"""Write ``ms_tune/facts/data/mindspeed_mm.json``: the settings of MindSpeed-MM's FSDP2 YAML, by release.

Run by hand, with ``MS_TUNE_MINDSPEED_MM_SOURCES`` naming a folder that has ``26.0.0``, ``26.1.0`` and ``master``, each
with the folder ``mindspeed_mm`` of that branch: ``python -m tests.oracle.make_mindspeed_mm``. Nothing is imported: the
classes of ``fsdp/params`` are read as text, and their uses in the other modules of ``fsdp``.
"""

from __future__ import annotations

import ast
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ms_tune.facts import query

SOURCES = "MS_TUNE_MINDSPEED_MM_SOURCES"
BRANCHES = {
    "26.0": "26.0.0",
    "26.1": "26.1.0",
    "26.2": "master",
}  # the last one is not released; its keys are not misspellings
SECTIONS = {
    "parallel": "ParallelArguments",
    "features": "FeatureArguments",
    "training": "TrainingArguments",
    "tools": "ToolsArguments",
}
MODEL = "ModelArguments"  # models accept further keys of their own
_HANDED_ON = "quantization_plan"  # read by another library
_PLAIN = ("int", "float", "str", "bool")


def fields_of(tree: Path) -> dict[str, dict[str, Any]]:
    """Return every declared setting of a branch by its path."""
    files = sorted((tree / "mindspeed_mm/fsdp/params").glob("*.py"))
    inside = {file: {one.name: one for one in _classes(file)} for file in files}
    every = {name: one for classes in inside.values() for name, one in classes.items()}
    found: dict[str, dict[str, Any]] = {}
    for section, name in (*SECTIONS.items(), ("model", MODEL)):
        for classes in inside.values():
            if name in classes:  # two files have a class of the name Profiler
                _add(section, classes[name], {**every, **classes}, found)
    return found


def _classes(file: Path) -> list[ast.ClassDef]:
    return [one for one in ast.parse(file.read_text("utf-8")).body if isinstance(one, ast.ClassDef)]


def _add(path: str, node: ast.ClassDef, classes: dict[str, ast.ClassDef], found: dict[str, dict[str, Any]]) -> None:
    for one in node.body:
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name) or one.target.id.startswith("_"):
            continue
        inner = classes.get(ast.unparse(one.annotation))
        key = f"{path}.{one.target.id}"
        found[key] = {"type": "dict"} if inner else _field(one)
        if inner:
            _add(key, inner, classes, found)


def _field(node: ast.AnnAssign) -> dict[str, Any]:
    """Return the type (several parts as ``int|null``), the choices and the default of a field."""
    made: dict[str, Any] = {}
    kinds, choices = _kinds(node.annotation)
    if kinds:
        made["type"] = "|".join(kinds)
    if choices:
        made["choices"] = choices
    value = node.value
    if isinstance(value, ast.Call):  # field(default=...)
        value = next((keyword.value for keyword in value.keywords if keyword.arg == "default"), None)
    with suppress(ValueError):
        made["default"] = ast.literal_eval(value) if value is not None else None
    return {name: one for name, one in made.items() if name != "default" or one is not None}


def _kinds(node: ast.expr) -> tuple[list[str], list[Any]]:  # noqa: PLR0911 - a form a line
    if isinstance(node, ast.Name):
        return ([node.id] if node.id in _PLAIN else []), []
    if not isinstance(node, ast.Subscript):
        return [], []
    outer = ast.unparse(node.value)
    if outer == "Literal":
        values = ast.literal_eval(node.slice)
        return ["str"], list(values if isinstance(values, tuple) else (values,))
    if outer == "List":
        return ["list"], []
    if outer == "Optional":
        kinds, choices = _kinds(node.slice)
        return ([*kinds, "null"] if kinds else []), choices
    if outer == "Union" and isinstance(node.slice, ast.Tuple):
        parts = [_kinds(one)[0] for one in node.slice.elts]
        return ([kind for part in parts for kind in part] if all(parts) else []), []
    return [], []


def read_in(tree: Path) -> tuple[dict[str, list[str]], set[str]]:
    """Return the names that modules read of each section (``args.training.scheduler``), and all names that any module reads."""
    found: dict[str, set[str]] = {section: set() for section in SECTIONS}
    every: set[str] = set()
    for file in sorted((tree / "mindspeed_mm/fsdp").rglob("*.py")):
        params = "params" in file.parts
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            for owner, name in _reads(node):
                section = _section(owner, file)
                if section in found:
                    found[section].add(name)
                if not params:
                    every.add(name)
    return {section: sorted(names) for section, names in found.items()}, every


def _reads(node: ast.AST) -> list[tuple[str, str]]:
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        return [(ast.unparse(node.value).rpartition(".")[2], node.attr)]
    asking = isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr") and len(node.args) > 1
    if asking and isinstance(node, ast.Call) and isinstance(node.args[1], ast.Constant):
        return [(ast.unparse(node.args[0]).rpartition(".")[2], str(node.args[1].value))]
    return []


def _section(owner: str, file: Path) -> str:
    """Return the section of an object: by its name, or by the module whose ``self.config`` it is."""
    if owner == "config" and file.name == "apply_features.py":
        return "features"
    names = {
        "training_args": "training",
        "parallel_args": "parallel",
        "feature_args": "features",
        "tools_args": "tools",
    }
    return names.get(owner, owner)


def make_facts(sources: Path) -> dict[str, Any]:
    """Return the content of the data file."""
    fields: dict[str, dict[str, Any]] = {}
    further: dict[str, dict[str, list[str]]] = {}
    unread: dict[str, list[str]] = {}
    for release, branch in BRANCHES.items():
        declared = fields_of(sources / branch)
        for path in {*declared, *fields}:
            _add_fact(fields.setdefault(path, {}), release, declared.get(path, {"gone": True}))
        read, every = read_in(sources / branch)
        own = {section: {path.split(".")[1] for path in declared if path.startswith(f"{section}.")} for section in read}
        further[release] = {section: sorted(set(names) - own[section]) for section, names in read.items()}
        unread[release] = sorted(
            path
            for path, one in declared.items()
            if one.get("type") != "dict" and path.rpartition(".")[2] not in every and _HANDED_ON not in path
        )
    return {"fields": dict(sorted(fields.items())), "read": further, "unread": unread}


def _add_fact(history: dict[str, Any], release: str, fact: dict[str, Any]) -> None:
    last = next(reversed(history.values())) if history else {"gone": True}
    if fact != last:
        history[release] = fact


def written(content: dict[str, Any]) -> str:
    """Return the data file's text: one setting per line."""
    rows = [f' "source": {json.dumps("MindSpeed-MM, mindspeed_mm/fsdp/params; " + ", ".join(BRANCHES.values()))}']
    for key, value in content.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in value.items())
        rows.append(f" {json.dumps(key)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    path = Path(query.__file__).with_name("data") / "mindspeed_mm.json"
    path.write_text(written(make_facts(Path(os.environ[SOURCES]))), "utf-8")
