"""Make a JSON Schema (draft-07) for editors from the tables of keys.

It helps to write a config and is permissive: unknown keys are valid, null is valid everywhere (frameworks treat it as a
missing key), and values are only refused if the framework itself refuses them. Reporting errors is left to the linter, which
knows versions and severities.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ms_tune.enums import Dialect
from ms_tune.facts.keys import Key, tables
from ms_tune.facts.query import REQUIRED

DRAFT = "http://json-schema.org/draft-07/schema#"
ITEM = "*"

_TYPES = {
    "int": "integer",
    "float": "number",
    "str": "string",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
    "null": "null",
}
_ITEMS = re.compile(r"list\[(\w+)(?:\[.*\])?\]")  # of a list of lists only the outer one is described
_STATES = {"dead": "accepted, and read by nothing / 会被接受，但没有代码读取", "deprecated": "deprecated / 已废弃"}


def schema(dialect: Dialect, release: str | None = None) -> dict[str, Any]:
    """Return the schema of a dialect's configs, for one release or all known ones."""
    root: dict[str, Any] = {
        "$schema": DRAFT,
        "title": f"ms-tune: {dialect.value} {release or ''}".rstrip(),
        "description": _SCHEMA_TEXT,
        "type": "object",
        "properties": {},
    }
    described: set[tuple[str, ...]] = set()
    for key in tables(dialect, release):
        place = _place(root, key.path)
        # A key with several rows differs between versions: none of its limits applies to all.
        place.update(_described(key, limited=key.path not in described))
        if key.path in described:
            for name in _LIMITS:
                place.pop(name, None)
        described.add(key.path)
    return root


_LIMITS = ("type", "anyOf", "exclusiveMinimum", "minimum", "maximum")


_SCHEMA_TEXT = (
    "Made by 'ms-tune schema'. YAML 1.1 is what the frameworks read: set yaml.yamlVersion to 1.1 in the editor. / "
    "由 'ms-tune schema' 生成。框架按 YAML 1.1 读取配置：请在编辑器中将 yaml.yamlVersion 设为 1.1。"
)


def _place(root: dict[str, Any], path: Iterable[str]) -> dict[str, Any]:
    """Return the subschema at a key path; create it if necessary."""
    here = root
    for part in path:
        here = here.setdefault("items", {}) if part == ITEM else here.setdefault("properties", {}).setdefault(part, {})
    return here


def _described(key: Key, *, limited: bool) -> dict[str, Any]:
    words = f"{key.en}\n{key.zh}"
    span = " - ".join(filter(None, (key.since, key.until)))
    if span:
        words += f"\n[{'>=' if not key.until else '<=' if not key.since else ''}{span}]"
    if key.state != "live":  # in words, because editors show a `deprecationMessage` as an error
        words += f"\n[{_STATES[key.state]}]"
    found: dict[str, Any] = {"description": words}
    if key.default is not None and key.default != REQUIRED:
        found["default"] = list(key.default) if isinstance(key.default, tuple) else key.default
    if key.choices:
        # Suggested but not enforced: the next version may accept more.
        found["anyOf"] = [{"enum": list(key.choices)}, {}]
    return found | _limits(key) if key.strict and limited else found


def _limits(key: Key) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if key.types:
        kinds = [_ITEMS.fullmatch(name) for name in key.types]
        types = {_TYPES["list" if kind else name] for kind, name in zip(kinds, key.types, strict=True)} | {"null"}
        found["type"] = sorted(types - ({"integer"} if "number" in types else set()))
        items = [_TYPES[kind[1]] for kind in kinds if kind]
        if items and "list" not in key.types:
            found["items"] = {"type": sorted(items)}
    bounds = {"exclusiveMinimum": key.above, "minimum": key.least, "maximum": key.most}
    return found | {name: bound for name, bound in bounds.items() if bound is not None}
