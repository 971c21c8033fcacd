"""Look at a text in an editor: findings, keys, choices, files that it names, and the memory of its job.

The text need not be on the disk, and may be broken while it is being written: sections are found by the indentation of lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path

from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.errors import MsTuneError
from ms_tune.facts import megatron
from ms_tune.facts.keys import Key, arguments_of, by_section, registered
from ms_tune.job import Job
from ms_tune.job.script import ScriptJob
from ms_tune.lint.checklist import built_in
from ms_tune.lint.result import LintReport, LintRequest
from ms_tune.lint.runner import is_code, lint_files
from ms_tune.records import Record
from ms_tune.source import SCRIPTS
from ms_tune.source.shell.read import find_above
from ms_tune.source.yaml import ANY, MAX_BYTES, parse_source
from ms_tune.workflows.check.config import OverviewRequest, config_overview, inspect_config
from ms_tune.workflows.check.result import Overview

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from ms_tune.dialects import LayerPlan
    from ms_tune.facts.query import Release

_LINE = re.compile(r"(?P<lead> *(?:- +)*)(?P<key>[^\s#:'\"\[\]{},-][^\s:#'\"\[\]{},]*) *:(?: +(?P<value>[^\s#]*)|$)")
_LEAD = re.compile(r" *(?:- +)*")
_WORD = re.compile(r"[^\s'\"=,;\[\]{}()]+")
_VARIABLE = re.compile(r"\$\{?(\w+)")
_COMMENT = re.compile(r"(?:^|\s)#")
_NO_KEY = re.compile(r"[\s:{}\[\],'\"]")  # in the text before a key that is being written
_LONGEST_NAME = 1024  # characters of a file's name


class Completion(Record):
    """A word that may be written at a place."""

    word: str
    key: Key | None  # the key that it is, or whose value it is; None for an argument of a class
    is_key: bool  # whether it is a key, not a value


class JobLens(Record):
    """The memory and layers of a config's job, to be shown above its settings."""

    overview: Overview
    plan: LayerPlan | None  # None if the framework refuses it, or it is unknown
    recompute_offset: int | None  # where the recomputation of layers is set; None if nowhere


class EditorFile:
    """One version of a text in an editor.

    Args:
        path: The file's name; the file need not exist.
        text: The text, as the editor shows it.
        request: The device that the job is judged by, and the release.
        before: The previous version, whose dialect is used while this one cannot be read.
    """

    def __init__(self, path: Path, text: str, request: OverviewRequest, before: EditorFile | None = None) -> None:
        self.path, self.text, self.request = path, text, request
        self._kind_before = before.kind if before is not None else None

    def _lint(self, *, fix: Literal["safe"] | None = None) -> LintReport:
        asked = LintRequest(
            stdin=self.text.encode("utf-8", "replace"),  # half a character, which an editor may send, has no bytes
            stdin_filename=self.path,
            framework_version=self.request.framework_version,
            skip_unknown=True,
            fix=fix,
        )
        return lint_files("-", request=asked)

    @cached_property
    def report(self) -> LintReport:
        """Return the findings of ``ms-tune lint`` in this text; files of other programs are skipped."""
        return self._lint()

    def fix_all(self) -> str:
        """Return the text with all safe fixes, as ``ms-tune lint --fix`` writes it."""
        return next((one.text for one in self._lint(fix="safe").files if one.fixed), self.text)

    @cached_property
    def job(self) -> Job | None:
        """Return the job of a config; None for other files, and while the text cannot be read."""
        if is_code(self.path) or len(self.text) > MAX_BYTES:
            return None
        try:
            job = Job(parse_source(self.text, self.path), version=self.request.framework_version)
            for _ in (*job.follow_bases(), *job.follow_model()):
                pass  # the linter reports files that cannot be read
            is_known = job.dialect in YAML_DIALECTS and bool(job.release)  # an unknown release is refused
        except MsTuneError:
            return None
        return job if is_known else None

    @property
    def kind(self) -> tuple[Dialect, Release] | None:
        """Return the dialect and release of a config, if necessary those of its last readable text; None for other files."""
        return (self.job.dialect, self.job.release) if self.job is not None else self._kind_before

    @cached_property
    def _script(self) -> ScriptJob | None:
        return ScriptJob(self.path, self.text) if self.path.suffix in SCRIPTS else None

    def key_at(self, offset: int) -> tuple[Key, int, int] | None:
        """Return the known key, or argument of a script, at an offset, and the range of its name; None if there is none."""
        start, line = self._line(offset)
        if self._script is not None:
            word = next((one for one in _WORD.finditer(line) if one.start() <= offset - start <= one.end()), None)
            found = self._argument(word[0]) if word is not None else None
            return None if word is None or found is None else (found, start + word.start(), start + word.end())
        for path, position in self.job.original.positions() if self.job is not None else ():
            span = position.key
            if span is not None and span.start <= offset <= span.end:
                key = self._keys(path[:-1]).get(str(path[-1]))
                return None if key is None else (key, span.start, span.end)
        match = _LINE.match(line) if self.job is None else None
        if match is None or not match.start("key") <= offset - start <= match.end("key"):
            return None
        key = self._keys(section_above(self.text[:start], match["lead"])).get(match["key"])
        return None if key is None else (key, start + match.start("key"), start + match.end("key"))

    def complete(self, offset: int) -> tuple[list[Completion], int]:
        """Return the words that may be written at an offset, and where the word that they replace starts."""
        start, line = self._line(offset)
        head = line[: offset - start]
        if _COMMENT.search(head):
            return [], offset
        if self._script is not None:
            word = re.search(r"--[\w-]*$", head)
            names = sorted(megatron.names(self._script_release)) if word and self._script_release else ()
            return [
                Completion(one, self._argument(one), is_key=True) for one in names
            ], start + word.start() if word else 0
        match = _LINE.match(head)
        if match is not None:  # after a colon
            path = (*section_above(self.text[:start], match["lead"]), match["key"])
            word = re.search(r"[^\s\[,'\"]*$", head)
            return list(self._values(path)), start + (word.start() if word else len(head))
        lead = _LEAD.match(head)
        typed = lead.end() if lead else 0
        if _NO_KEY.search(head, typed):
            return [], offset
        section = section_above(self.text[:start], head[:typed])
        written = _siblings(self.text[:start].splitlines(), self.text[start:].splitlines()[1:], typed)
        keys: dict[str, Key | None] = {name: key for name, key in self._keys(section).items() if name != ANY}
        for name in self._arguments(section, written):
            keys.setdefault(name, None)
        words = [Completion(name, key, is_key=True) for name, key in keys.items() if name not in written]
        return words, start + typed

    def definition_at(self, offset: int) -> Path | None:
        """Return the file that is named at an offset, also by a variable of a script; None if it does not exist."""
        start, line = self._line(offset)
        word = next((one[0] for one in _WORD.finditer(line) if one.start() <= offset - start <= one.end()), "")
        variable = _VARIABLE.search(word)
        if self._script is not None and variable is not None:
            jobs = self._script.config_jobs
            return next((one.path for one in jobs if one.path is not None and variable[1] in one.config.via), None)
        return find_above(self.path, word) if "." in word and len(word) < _LONGEST_NAME else None

    def lens(self) -> JobLens | None:
        """Return the estimate and the layers of a config, which takes longer than other answers; None for other files."""
        if self.job is None:
            return None
        config = inspect_config(self.request, self.path, self.job)
        spans = ((path, position.key) for path, position in self.job.original.positions())
        named = (span.start for path, span in spans if span is not None and str(path[-1]).startswith("recompute"))
        plan = config.plan if config.plan is not None and config.plan.layers else None
        return JobLens(config_overview(config, self.path, self.report), plan, next(named, None))

    def _line(self, offset: int) -> tuple[int, str]:
        """Return the start of the line at an offset, and its text."""
        start = max(self.text.rfind("\n", 0, offset), self.text.rfind("\r", 0, offset)) + 1
        return start, re.split("[\r\n]", self.text[start : start + _LONGEST_NAME], maxsplit=1)[0]

    def _keys(self, section: Iterable[str | int]) -> Mapping[str, Key]:
        if self.kind is None:
            return {}
        path = tuple(ANY if isinstance(one, int) else one for one in section)
        return by_section(self.kind[0], self.kind[1].version).get(path, {})

    def _values(self, path: tuple[str, ...]) -> Iterator[Completion]:
        """Yield the values of a key: its choices, or the registered classes."""
        key = self._keys(path[:-1]).get(path[-1])
        choices = list(key.choices) if key is not None else []
        if key is not None and ("bool" in key.types or isinstance(key.default, bool)):
            choices += [True, False]
        if self.kind is not None and path in (kinds := _classes_named_at(self.kind[0])):
            choices += sorted(registered(kinds[path], self.kind[1].version, self.kind[0]))
        for choice in dict.fromkeys(map(str, choices)):
            yield Completion(choice, key, is_key=False)

    def _arguments(self, section: tuple[str, ...], written: Mapping[str, str]) -> Iterable[str]:
        """Return the arguments of the class that a section names."""
        for path, kind in _classes_named_at(self.kind[0]).items() if self.kind is not None else ():
            if path[:-1] == section and path[-1] in written and self.kind is not None:
                found = arguments_of(kind, written[path[-1]], self.kind[1].version)
                return sorted(found.names) if found is not None else ()
        return ()

    @cached_property
    def _script_release(self) -> str | None:
        """Return the release of MindSpeed-LLM whose programs a script starts; None if it starts none."""
        try:
            return self._script.release if self._script is not None and self._script.commands else None
        except MsTuneError:
            return None

    def _argument(self, word: str) -> Key | None:
        found = megatron.definitions(word, self._script_release) if self._script_release else ()
        if not found:
            return None
        one, where = found[0], ", ".join(dict.fromkeys(each.part for each in found))
        types = ("bool",) if one.action else (f"list[{one.type}]",) if one.nargs else (one.type,)
        default = None if one.default == megatron.UNREAD else one.default
        return Key(path=(word,), name=word, en=where, zh=where, types=types, default=default, choices=one.choices or ())


@cache
def _classes_named_at(dialect: Dialect) -> Mapping[tuple[str, ...], str]:
    """Return the kind of registered class that each key path names, as the checks of the dialect have it."""
    options = [check.options for check in built_in(dialect) if isinstance(check.options.get("names"), dict)]
    return {tuple(str(path).split(".")): str(kind) for one in options for path, kind in one["names"].items()}


def section_above(text: str, lead: str) -> tuple[str, ...]:
    """Return the path of the section that a line is in, from the text above it and its indentation with any dashes.

    Items of lists are ``*``. This needs no valid YAML.
    """
    path = [ANY] if "-" in lead else []
    limit = lead.index("-") + 1 if "-" in lead else len(lead)
    for line in reversed(text.splitlines()):
        match = _LINE.match(line) if limit else None
        if match is None:
            continue
        column, dash = len(match["lead"]), match["lead"].find("-")
        if column < limit:
            path.append(match["key"])
        if column < limit or (column == limit and dash >= 0):  # around this line, or the first key of its item
            path += [ANY] if dash >= 0 else []
            limit = dash + 1 if dash >= 0 else column
    return tuple(reversed(path))


def _siblings(above: list[str], below: list[str], column: int) -> dict[str, str]:
    """Return the other keys of the section at a column, with the first word of their values."""
    found: dict[str, str] = {}
    for lines in (reversed(above), below):
        for line in lines:
            match = _LINE.match(line)
            if match is not None and len(match["lead"]) < column:
                break
            if match is not None and len(match["lead"]) == column:
                found.setdefault(match["key"], match["value"] or "")
                if "-" in match["lead"]:
                    break
    return found
