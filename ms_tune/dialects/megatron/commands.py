"""The source of checks for a program that a launch script starts: its final arguments are the keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ms_tune.diagnostics import Diagnostic, Fix, KeyPath, Location, Severity, TextEdit
from ms_tune.dialects.check_context import CheckContext, CodeSource, FixRule, Violation
from ms_tune.dialects.megatron.arguments import CliArgument, ProgramArguments, command_of, without_unset
from ms_tune.dialects.megatron.detect import has_another_parser
from ms_tune.dialects.megatron.edit_arguments import ArgumentChange, with_change
from ms_tune.dialects.megatron.placement import ARGUMENTS
from ms_tune.dialects.megatron.read import NotEvaluableError, inputs_of
from ms_tune.dialects.megatron.write import remedy_changes
from ms_tune.errors import ConfigError
from ms_tune.facts.megatron import names_by_dest
from ms_tune.facts.models import UNKNOWN
from ms_tune.source.edit import EditRefusedError
from ms_tune.source.shell.read import Launches, restore_line_ends
from ms_tune.source.shell.values import Argument, Reason, text_of
from ms_tune.source.yaml import SourceFile
from ms_tune.source.yaml_nodes import Document, Node, NodeEntry
from ms_tune.text import Message, Text, lookup, msg

if TYPE_CHECKING:
    from pathlib import Path

_UNKNOWN_VALUES = "value-not-evaluable"  # the check of values that are only known at run time
_DEFAULT = re.compile(r"\$\{(\w+):?[-=]")
_REWRITES = ("leave-out", "leave-out-earlier", "reached", "remedy")
FULL_SCRIPT = 20  # arguments of a complete script (usually a hundred); excerpts are not checked for missing ones
_MOST_ARGUMENTS = 400  # training scripts have about a hundred
_LONGEST = 200_000  # characters
Source = TypeVar("Source", bound="LaunchSource")


class LaunchSource(CodeSource):
    """One command of a script; locations in other files are reported at the command."""

    def __init__(  # noqa: PLR0913, PLR0917 - one per field
        self,
        path: Path,
        text: str,
        data: dict[Any, Any],
        root: Node,
        command: ProgramArguments,
        launches: Launches,
        *,
        number: int = 0,
        original: str = "",
        supposed: tuple[str, ...] = (),
        missing_file: str = "",
    ) -> None:
        super().__init__(path, text, data, (), root)
        self.command, self.script, self.launches = command, launches.file, launches
        self.number, self.original, self.supposed = number, original, supposed
        self.missing_file = (
            missing_file  # the sourced file that is not here, if the variables supposed are those it may set
        )
        # Results of requested changes: several findings may request the same.
        self.fixed: dict[tuple[ArgumentChange, ...], Fix | Message] = {}

    def span_of(self, word: Argument) -> Location:
        """Return the location of a word in the script, or of the command if the word is in another file."""
        place = word.place if word.place.file is self.script else self.command.launch.place
        if place.file is not self.script:
            return self.script.span(0, 0)
        empty = place.start == place.end and 0 < place.start < len(self.script.text)
        return self.script.span(place.start - empty, place.end + empty)  # include the quotation marks of an empty word

    @cached_property
    def key_names(self) -> frozenset[str]:
        """Return the names and destinations of all given arguments."""
        given = self.command.items
        return frozenset((*(one.name for one in given), *(row.dest for one in given for row in one.definitions)))

    def look_up(self, name: str) -> tuple[object, KeyPath | None]:
        """Return the value of a name and where it is set: an argument by destination, ``launch.processes``, ``launch.environment.X``."""
        room, _, name = name.partition(".")
        if room == "launch":
            launch = self.command.launch
            pieces = launch.environment.get(name.removeprefix("environment."))
            found = launch.processes if name == "processes" else text_of(pieces) if pieces else None
            return UNKNOWN if found is None else found, None
        given = self.command.last(name)
        value = self.command.value(name) if given or name in names_by_dest(self.command.release) else None
        return value, (given.name,) if given else None

    def with_text(self, text: str) -> LaunchSource:
        """Raise EditRefusedError: a changed script is always read as a whole."""
        return self._refuse(text)

    def fix(self, rule: FixRule, violation: Violation) -> Fix:
        """Remove an argument, change its value, or apply the changes with which the frameworks accept the arguments."""
        if rule.rewrite is None or rule.rewrite not in _REWRITES or self.supposed:
            return self._refuse(rule)
        if len(self.command.items) > _MOST_ARGUMENTS or len(self.text) > _LONGEST:
            raise EditRefusedError(msg("edits.unclear"))  # the script is read again for each argument
        changes = _apply_remedy(self) if rule.rewrite == "remedy" else _change_written(self, violation, rule.rewrite)
        if changes not in self.fixed:
            self.fixed[changes] = self._with(changes, safe=rule.safe)
        fix = self.fixed[changes]
        if isinstance(fix, Message):
            raise EditRefusedError(fix)
        return fix

    def _with(self, changes: tuple[ArgumentChange, ...], *, safe: bool) -> Fix | Message:
        """Return the fix that makes several changes one after the other, or the reason why it is impossible."""
        script, words = self.launches, []
        try:
            for change in changes:
                script = with_change(script, self.command.release, self.number, change)
                words.append(f"- {change.name}" if change.values is None else change.words)
        except EditRefusedError as refusal:
            return refusal.message
        if not changes or script.file.text == self.text:
            return msg("edits.not-here")
        title = msg("edits.script.title", words="; ".join(words))
        text = restore_line_ends(self.original, script.file.text)
        return Fix(safe, title, changes, (_difference(self.original or self.text, text),))

    def proves(self, fixes: Sequence[Fix]) -> bool:
        """Return whether there is at most one fix: each was proved when it was built, combinations were not."""
        return len(fixes) <= 1

    def quoted(self) -> list[tuple[int, int]]:
        """Return an empty list: ``#`` starts a comment everywhere in a script."""
        return []

    def _refuse(self, *_: object) -> NoReturn:
        raise EditRefusedError(msg("edits.not-here"))


def _difference(old: str, new: str) -> TextEdit:
    least = min(len(old), len(new))
    start = next((at for at in range(least) if old[at] != new[at]), least)
    rest = next((at for at in range(least - start) if old[-1 - at] != new[-1 - at]), least - start)
    return TextEdit(start, len(old) - rest, new[start : len(new) - rest])


def _change_written(source: LaunchSource, violation: Violation, rewrite: str) -> tuple[ArgumentChange, ...]:
    name = str(violation.path[0])
    places = [at for at, one in enumerate(source.command.items) if one.name == name]
    values = (str(violation.params["reached"]),) if rewrite == "reached" else None
    return (ArgumentChange(places[0 if rewrite == "leave-out-earlier" else -1], name, values),)


def _apply_remedy(source: LaunchSource) -> tuple[ArgumentChange, ...]:
    """Return the changes of the remedy one after the other, each relative to the text after the previous one."""
    try:
        inputs = inputs_of(source.command)
    except NotEvaluableError:
        raise EditRefusedError(msg("edits.unclear")) from None
    except ConfigError as error:  # the arguments are refused, but the resulting layers are unknown
        raise EditRefusedError(error.message) from error
    fields = remedy_changes(inputs) or {}
    given = [one.name for one in source.command.items]
    found = []
    for field_, value in fields.items():
        name = ARGUMENTS[field_]
        out = value is None or value is False
        if name in given:
            at = len(given) - 1 - given[::-1].index(name)
            found.append(ArgumentChange(at, name, None if out else (str(value),)))
            given[at : at + 1] = [] if out else [name]
        elif not out:
            beside = next((one for one in ("--recompute-granularity", "--num-layers") if one in given), given[0])
            at = given.index(beside)
            found.append(ArgumentChange(at, name, (str(value),), new=True))
            given.insert(at, name)
    return tuple(found)


def commands_in(found: Launches, text: str, release: str) -> tuple[LaunchSource, ...]:
    """Return the MindSpeed-LLM programs that a script starts, each with its arguments.

    A command with words from outside (such as unset variables) is listed a second time without them, and one with values that a
    sourced file may set with the values of ``${name:-value}``.
    """
    text = text.removeprefix("\ufeff")
    commands = ((number, command_of(launch, release)) for number, launch in enumerate(found.launches))
    return tuple(
        arguments_of(found, number, read, LaunchSource, original=text, supposed=supposed, missing_file=missing)
        for number, command in commands
        if command is not None and not has_another_parser(text, command)
        for read, supposed, missing in (
            (command, (), ""),
            (*without_unset(command), ""),
            _with_defaults(found, number, command),
        )
        if read is not None
    )


def _with_defaults(
    found: Launches, number: int, command: ProgramArguments
) -> tuple[ProgramArguments | None, tuple[str, ...], str]:
    # Return the command with the defaults of variables that a sourced file may set, their names, and that file.
    pieces = [piece for word in command.launch.arguments for piece in word.pieces if piece.unknown is not None]
    pieces = [piece for piece in pieces if piece.unknown is not None and piece.unknown.reason is Reason.FILE]
    texts = (piece.place.file.text[piece.place.start : piece.place.end] for piece in pieces)
    names = dict.fromkeys(match[1] for text in texts if (match := _DEFAULT.match(text)))
    if not names or not found.assumed or pieces[0].unknown is None:
        return None, (), ""
    return command_of(found.assumed[number], command.release), tuple(names), pieces[0].unknown.name


def findings_of(
    commands: Iterable[SourceFile], found_in: Callable[[SourceFile], Iterable[Diagnostic]]
) -> Iterator[Diagnostic]:
    """Yield the findings of a script's commands with their conditions.

    A finding that appears only without words from outside, or with assumed values, states this, has no fix and is not an error,
    because the environment of the script may differ. An assumed value is not reported as unknown.
    """
    known: set[tuple[str, int, str]] = set()
    commands = tuple(commands)
    assumed = {one.number for one in commands if isinstance(one, LaunchSource) and one.missing_file}
    for one in commands:
        source = one if isinstance(one, LaunchSource) and one.supposed else None
        has_assumed = isinstance(one, LaunchSource) and one.number in assumed
        for finding in found_in(one):
            key = (finding.id, finding.location.start, str(finding.message))
            if finding.name == _UNKNOWN_VALUES and has_assumed:
                if source is not None and source.missing_file:  # unknown in spite of the defaults
                    yield finding
            elif source is None:
                known.add(key)
                yield finding
            elif key not in known:
                yield _unless_set(finding, source)


def _unless_set(finding: Diagnostic, source: LaunchSource) -> Diagnostic:
    supposed, file = source.supposed, source.missing_file
    text, names = finding.message.text, ", ".join(name for name in supposed if name != "@")
    condition = "unless-set-or-given" if "@" in supposed else "unless-sourced" if file else "unless-set"
    said = lookup(f"lint.{condition if names else 'unless-given'}")
    text = Text(said.en.replace("{message}", text.en), said.zh.replace("{message}", text.zh))
    message = Message("", {**finding.message.params, "supposed": names, "sourced": file}, text)
    severity = Severity.WARNING if finding.severity is Severity.ERROR else finding.severity
    return finding._replace(message=message, severity=severity, fix=None, unfixable=None)


def arguments_of(
    launches: Launches,
    number: int,
    command: ProgramArguments,
    kind: type[Source],
    **further: Any,  # noqa: ANN401 - fields of the kind
) -> Source:
    """Build a source of the given kind, with a command's arguments as keys."""
    script = launches.file
    path = script.path
    lines = Document(script.text, path)
    empty = Node(lines.span(0, 0))
    source = LaunchSource(path, script.text, {}, empty, command, launches, number=number)
    entries: dict[str | int, NodeEntry] = {}
    data: dict[str, object] = {}
    for one in command.items:
        spans = [source.span_of(value) for value in one.values]
        span = (
            spans[0] if spans and one.nargs != 0 else source.span_of(one.word)
        )  # words after a switch are not its value
        entries[one.name] = NodeEntry(source.span_of(one.word), Node(span), None)
        data[one.name] = [value.text for value in one.values] or None
    place = command.launch.place
    start, end = (place.start, place.end) if place.file is script else (0, 0)
    root = Node(lines.span(start, end), entries)
    return kind(path, script.text, data, root, command, launches, number=number, **further)


def read_command(context: CheckContext) -> tuple[LaunchSource, ProgramArguments]:
    """Return the command under check."""
    if not isinstance(context.source, LaunchSource):
        raise TypeError(context.source)
    return context.source, context.source.command


def find_repeats(command: ProgramArguments) -> Iterator[tuple[CliArgument, CliArgument, dict[str, str]]]:
    """Yield each argument that is repeated with other values, with the previous argument and both values."""
    before: dict[str, CliArgument] = {}
    for one in command.items:
        first = before.get(one.name)
        before[one.name] = one
        old, new = ([value.text for value in given.values] if given else [] for given in (first, one))
        if first is not None and new and old != new and None not in (*old, *new):
            yield first, one, {"old": " ".join(map(str, old)), "new": " ".join(map(str, new))}


def spell_argument(dest: str) -> str:
    """Return the usual name of an argument by its destination."""
    return f"--{dest.replace('_', '-')}"


def violation_at(
    command: ProgramArguments, names: Sequence[str], params: Mapping[str, object], message: str = "default"
) -> Violation:
    """Build a violation at the first of the arguments that is given, each by name or destination."""
    found = (command.last(name) or command.last_of(name) for name in names)
    given = next((one for one in found if one), None)
    return Violation((given.name,) if given else (), message, params, at_key=given is not None and not given.values)
