"""Write the text of the new file: sections in the framework's order, and each key with the comments of its source key."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from ms_tune.diagnostics import KeyPath
from ms_tune.source.edit import spell
from ms_tune.source.yaml import SourceFile, nest_values
from ms_tune.text import Language, Message, msg, render
from ms_tune.workflows.migrate.draft import SECTIONS, MigrationDraft
from ms_tune.workflows.migrate.result import Fate, KeyFate

_ORDER = (
    *("run_mode", "checkpoint", "training", "optimizer", "lr_scheduler", "parallelism", "recompute", "recompute_comm"),
    *("swap", "train_dataset", "model", "monitor", "context", "profiler", "callbacks", "lora_config"),
)
# Source section whose comments are written above one of the new file.
_SOURCES = {new: (old,) for old, new in reversed(SECTIONS.items())}
_BREAKS = "\r\n\x85\u2028\u2029"  # line ends of YAML 1.1, which also end a comment
_COMMENT = re.compile(rf"(?:^|(?<=\s))#[^{_BREAKS}]*")
_STARTS = re.compile(r"(?:^|(?<=\s))#")
_MOST_IN_LINE = 8  # possible starts of a comment to check per line, as the first ones can be inside a value
_LINE = 100
_MOST_ABOVE = 20  # maximum lines of a comment above a key


def nest_sections(values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Convert values by key to nested sections, in the framework's order."""
    rank = {name: number for number, name in enumerate(_ORDER)}
    return nest_values(dict(sorted(values.items(), key=lambda one: rank.get(one[0][0], len(rank)))))


def write_text(draft: MigrationDraft, entries: Iterable[KeyFate], language: Language) -> str:
    """Return the text of the whole new file."""
    writer = _TextWriter(draft, language, tuple(entries))
    lines = list(writer.write_lines())
    lines += writer.remaining_comments(lines)
    return "\n".join(lines) + "\n"


class _TextWriter:
    """Writer for the lines of the new file."""

    def __init__(self, draft: MigrationDraft, language: Language, entries: tuple[KeyFate, ...]) -> None:
        self._draft, self._language, self._entries = draft, language, entries
        self._asked: dict[tuple[str, ...], list[KeyFate]] = {}
        for one in entries:
            if one.fate is Fate.ASK:
                self._asked.setdefault(one.to, []).append(one)
        # Places of questions and remarks, including keys without a value.
        self._places = tuple(dict.fromkeys((*self._asked, *draft.notes)))

    def write_lines(self) -> Iterator[str]:
        draft = self._draft
        yield self._remark(msg("migrate.file.head", file=draft.source.path.name, release=draft.target))
        tree = nest_sections(draft.values)
        for name in dict.fromkeys((*tree, *(path[0] for path in self._places if path))):
            yield ""
            yield from self._write_key((name,), tree.get(name, {}), 0)
        if () in self._asked:
            yield ""
            yield from self._questions((), 0)
        # Write keys without a counterpart at the end, with their comments, so that nothing is lost.
        left = [one for one in self._entries if one.fate is Fate.NONE]
        if left:
            yield ""
            yield self._remark(msg("migrate.file.left"))
        for one in left:
            yield from self._own_comments(one, 0)
            reason = render(one.why, self._language) if one.why else ""
            yield f"#   {_join_lines(one.name)}: {_shorten(one.value)}  # {_join_lines(reason)}"

    def _write_key(self, path: tuple[str, ...], value: Any, depth: int) -> Iterator[str]:  # noqa: ANN401 - any value
        # Write a key and everything below it; a section that only contains remarks is itself written as a remark.
        pad, source = "  " * depth, self._draft.source
        origin = self._draft.origins.get(path) or (_SOURCES.get(path[0]) if len(path) == 1 else None)
        above, after = _find_comments(source, origin) if origin else ([], "")
        yield from (f"{pad}{line}" for line in above)
        yield from self._notes(path, depth)
        section = isinstance(value, dict) and (bool(value) or len(path) == 1)
        if not section or not value:
            yield from self._questions(path, depth)
        if not section:
            raw = _find_raw_list(source, origin, value) if origin and isinstance(value, list) and value else None
            spelled = f" {_spell_value(value)}" if raw is None else ""
            yield f"{pad}{spell(path[-1])}:{spelled}{after}"
            yield from (f"{pad}  {line}".rstrip() for line in raw or ())
            return
        below = [one[len(path)] for one in self._places if one[: len(path)] == path and len(one) > len(path)]
        if value:
            yield f"{pad}{spell(path[-1])}:{after}"
            yield from self._questions(path, depth + 1)
        elif below:
            yield f"{pad}# {path[-1]}:"
        for name in dict.fromkeys((*value, *below)):
            if name in value:
                yield from self._write_key((*path, name), value[name], depth + 1)
            else:
                yield from self._notes((*path, name), depth + 1)
                yield from self._questions((*path, name), depth + 1)

    def _notes(self, path: tuple[str, ...], depth: int) -> Iterator[str]:
        yield from (self._remark(note, depth) for note in self._draft.notes.get(path, ()))

    def _questions(self, path: tuple[str, ...], depth: int) -> Iterator[str]:
        for one in self._asked.get(path, ()):
            reason = one.why or msg("migrate.why.unknown")
            yield from self._own_comments(one, depth)
            question = msg("migrate.file.question", key=one.name, value=_shorten(one.value), question=reason)
            yield self._remark(question, depth)

    def remaining_comments(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the comments of the old files that no line of the new file carries, by file and line number."""
        there = {
            line[found.start() :].strip() for line in lines for found in islice(_STARTS.finditer(line), _MOST_IN_LINE)
        }
        own = self._draft.source
        each = [(one.path.name, [*list_comments(one)]) for one in (own, *own.others)]
        for name, comments in [*each, (own.path.name, self._draft.comments)]:
            left = [(number, text) for number, text in comments if text not in there]
            if left:
                yield ""
                yield self._remark(msg("migrate.file.comments", file=name))
                yield from (f"#   {number}: {text}" for number, text in left)

    def _own_comments(self, one: KeyFate, depth: int) -> Iterator[str]:
        above, after = _find_comments(self._draft.source, one.path)
        for line in (*above, *([after.strip()] if after else [])):
            yield f"{'  ' * depth}{line}"

    def _remark(self, message: Message, depth: int = 0) -> str:
        return f"{'  ' * depth}# {_join_lines(render(message, self._language))}"


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _spell_value(value: Any) -> str:  # noqa: ANN401 - any value
    if isinstance(value, list):
        return f"[{', '.join(map(_spell_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{spell(str(key))}: {_spell_value(item)}' for key, item in value.items())}}}"
    return spell(value)


def _shorten(value: object) -> str:
    text = _join_lines(_spell_value(value))
    return text if len(text) <= _LINE else f"{text[:_LINE]}..."


def _find_comments(source: SourceFile, path: KeyPath) -> tuple[list[str], str]:
    # Return the comment lines above a key, and the comment after its value with leading blanks.
    source = source.find_file(path)
    position = source.position(path)
    if position is None or position.key is None:
        return [], ""
    above: list[str] = []
    number = position.key.line - 1
    while number >= 1 and len(above) < _MOST_ABOVE and _COMMENT.fullmatch(line := source.line(number).strip()):
        above.insert(0, line)
        number -= 1
    span = position.value
    one_line = span.line == position.key.line
    rest = source.line(span.end_line)[span.end_column - 1 :] if one_line and span.end_line == span.line else ""
    if not one_line or span.end_line != span.line:  # a block: the comment is after the key itself
        rest = source.line(position.key.line)[position.key.end_column - 1 :]
        if one_line:
            rest = source.line(span.end_line)[span.end_column - 1 :]
    found = _COMMENT.search(rest)
    return above, f"  {found[0].strip()}" if found else ""


def list_comments(source: SourceFile) -> Iterator[tuple[int, str]]:
    """Yield every comment of a text with its line number; a ``#`` inside a value or a key is not a comment."""
    spans = [span for _, place in source.positions() if place.key is not None for span in (place.key,)]
    spans += [place.definition for path, place in source.positions() if not isinstance(source.get(path), (dict, list))]
    # A comment can follow the indicator of a block scalar (``|``, ``>``); the block begins on the next line.
    blocks = (span.start for span in spans if source.text[span.start : span.start + 1] in ("|", ">"))
    heads = {start: source.text.find("\n", start) for start in blocks}
    taken = sorted((heads.get(span.start, span.start), span.end) for span in spans)
    line, counted, at = 1, 0, 0
    text = source.text
    while (found := _COMMENT.search(text, at)) is not None:
        start = found.start()
        before = bisect_right(taken, (start, len(text))) - 1
        if before >= 0 and start < taken[before][1]:
            at = taken[before][1]
            continue
        line += text.count("\n", counted, start) + text.count("\r", counted, start) - text.count("\r\n", counted, start)
        counted, at = start, found.end()
        yield line, found[0].strip()


def _find_raw_list(source: SourceFile, path: KeyPath, value: object) -> list[str] | None:
    # Return the original lines of a multi-line list, including comments; None if they cannot be copied. Lists with aliases or
    # anchors are written out, as their definitions can be missing in the new file.
    source = source.find_file(path)
    position = source.position(path)
    if position is None or source.get(path) != value or position.uses or position.value != position.definition:
        return None
    span = position.value
    if position.key is None or span.line == position.key.line or source.text[span.start : span.start + 1] != "-":
        return None
    lines = [source.line(number) for number in range(span.line, span.end_line + 1)]
    if span.end_column == 1 and lines:
        lines.pop()
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    if any(re.search(r"(?:^|[\s\[{,:-])[&*]\w", line) for line in lines):
        return None
    indent = span.column - 1
    if any(line.strip() and line[:indent].strip() for line in lines):
        return None
    return [line[indent:].rstrip() for line in lines]
