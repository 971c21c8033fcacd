"""Encode values as JSON that conforms to RFC 8259; use it for all JSON that ms-tune writes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from enum import Enum
from math import isfinite

from ms_tune.text import Language, Message, Text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA_VERSION = "schema_version"  # in each file that ms-tune writes and reads again
_PLAIN = frozenset({str, int, float, bool, type(None)})
_SURROGATE = "[\ud800-\udfff]"  # half a character, as in file names that are not valid UTF-8


def json_text(value: object, indent: int | None = None, default: Callable[[object], object] | None = None) -> str:
    """Return a value as JSON text; without an indentation also without spaces.

    Infinite numbers and NaN, which JSON lacks, become ``null``. Lone surrogates are escaped.
    """
    separators = (",", ":") if indent is None else None

    def encode(each: object) -> str:
        return json.dumps(
            each, ensure_ascii=False, indent=indent, separators=separators, default=default, allow_nan=False
        )

    try:
        text = encode(value)
    except ValueError:
        text = encode(_finite(value))
    return text if text.isascii() else re.sub(_SURROGATE, lambda found: f"\\u{ord(found[0]):04x}", text)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, (list, tuple)) else value


def schema_version_of(content: Mapping[str, object]) -> object:
    """Return the schema version of a file that ms-tune wrote; up to 0.2.0 its key was ``version``."""
    return content.get(SCHEMA_VERSION, content.get("version"))


def as_json(value: object, language: Language | None) -> Any:  # noqa: ANN401 - JSON
    """Convert a value for JSON: records to mappings, enums to values, paths to texts, messages to one language (None: to all)."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (Message, Text)):
        return value.say(language) if language else {each.value: value.say(each) for each in Language}
    names = getattr(value, "__dataclass_fields__", None) or getattr(value, "_fields", None)
    if names and not isinstance(value, type):
        value = record_json(value, *names)
    if isinstance(value, Mapping):
        return {as_json(key, language): as_json(each, language) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(each, language) for each in value]
    return str(value) if isinstance(value, os.PathLike) else value


def record_json(record: object, *names: str) -> dict[str, object]:
    """Return some fields and properties of a record by name; without a record, all values are None."""
    return {name: None if record is None else getattr(record, name) for name in names}
