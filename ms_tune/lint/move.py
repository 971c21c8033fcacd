"""Moving a key of a config into another section: its lines, with the comments on them, one level further in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.diagnostics import TextEdit
from ms_tune.source.edit import ChangeKind, EditRefusedError, ValueChange
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.diagnostics import KeyPath
    from ms_tune.source.yaml import Position, SourceFile

_REST_OF_LINE = re.compile(r"[ \t]*(?:(?<=[ \t])#[^\r\n]*)?(?:\r\n|\r|\n)")
_BETWEEN = re.compile(r"[ \t]*:(?:[ \t]+|[ \t]*(?:#[^\r\n]*)?[\r\n]\s*)(?:#[^\r\n]*\s*)*")
_LINE_START = re.compile(r"^(?=[^\r\n])", re.MULTILINE)


def moved(source: SourceFile, path: KeyPath, section: KeyPath) -> tuple[tuple[ValueChange, ...], tuple[TextEdit, ...]]:
    """The changes and edits that move a key behind the last one of a section that is there and has no such key.

    Raises:
        EditRefusedError: One of the two is not spelled as lines of its own, or takes part in anchors and aliases.
    """
    target = (*section, path[-1])
    values = source.get(section)
    if not isinstance(values, dict) or not values:
        raise EditRefusedError(msg("edits.no-such-place"))
    if path[-1] in values:
        raise EditRefusedError(msg("edits.key-exists"))
    last = _own(source, (*section, next(reversed(values))))
    block, indent, end = _lines(source, _own(source, path))
    _, inner, behind = _lines(source, last)
    if inner < indent or block.start < behind <= end:
        raise EditRefusedError(msg("edits.not-a-line"))
    text = source.text[block.start : end]
    further_in = _LINE_START.sub(" " * (inner - indent), text)
    changes = (ValueChange(ChangeKind.REMOVE_KEY, path), ValueChange(ChangeKind.ADD_KEY, target, source.get(path)))
    return changes, (block, TextEdit(behind, behind, further_in))


def _own(source: SourceFile, path: KeyPath) -> Position:
    """The place of a key, if it has a spelling of its own there."""
    position = source.position(path)
    if position is None or position.key is None:
        raise EditRefusedError(msg("edits.no-such-place"))
    if position.uses or not _BETWEEN.fullmatch(source.text, position.key.end, position.value.start):
        raise EditRefusedError(msg("edits.shared"))
    return position


def _lines(source: SourceFile, position: Position) -> tuple[TextEdit, int, int]:
    """The removal of the lines of a key and its value, their indentation, and the offset behind them."""
    text, key = source.text, position.key
    rest = _REST_OF_LINE.match(text, position.value.end)
    if key is None or rest is None:
        raise EditRefusedError(msg("edits.not-a-line"))
    start = max(text.rfind("\n", 0, key.start), text.rfind("\r", 0, key.start)) + 1
    if text[start : key.start].strip(" "):
        raise EditRefusedError(msg("edits.not-a-line"))
    return TextEdit(start, rest.end(), ""), key.start - start, rest.end()
