"""PyYAML's safe loader, the quicker one of the two that there may be."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

import yaml

# A node, event or loader of PyYAML: its type stubs know too little of what the two parsers share.
Parsed: TypeAlias = Any

# The C parser is ten times as fast, and not in every build of PyYAML.
_PARSER: Parsed = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SHORT, _MOST = 24, 5000  # characters of a word whose tag is kept, and how many are


class Loader(_PARSER):  # type: ignore[misc]  # whichever there is
    """The safe loader, which works out once what a short word without quotes is: files of one folder have the same ones."""

    _tags: ClassVar[dict[str, str]] = {}

    def resolve(self, kind: Parsed, value: Parsed, implicit: Parsed) -> Parsed:
        """The tag of a node (``BaseResolver.resolve`` of PyYAML 6, ``yaml/resolver.py``)."""
        if kind is not yaml.ScalarNode or not implicit[0]:
            return super().resolve(kind, value, implicit)
        tag = self._tags.get(value)
        if tag is None:
            tag = super().resolve(kind, value, implicit)
            if len(value) <= _SHORT and len(self._tags) < _MOST:
                self._tags[value] = tag
        return tag


def has_fast_parser(loader: Parsed) -> bool:
    """Whether a loader is built on the C parser."""
    return issubclass(loader, getattr(yaml, "CSafeLoader", ()))
