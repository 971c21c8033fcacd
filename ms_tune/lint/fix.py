"""Fixes: from what a checklist says about them to proved edits, and from edits to fixed files."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Fix, Severity, TextEdit, last_key
from ms_tune.dialects.check_context import CodeSource
from ms_tune.enums import YAML_DIALECTS, ChangeKind
from ms_tune.errors import ConfigError, MsTuneError
from ms_tune.job.detect import count_keys
from ms_tune.records import Record
from ms_tune.source.edit import EditRefusedError, ValueChange, apply_edits, overlap, spell
from ms_tune.source.edit_proof import prove
from ms_tune.source.yaml import MISSING, parse_source
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ms_tune.diagnostics import Diagnostic, KeyPath
    from ms_tune.dialects.check_context import FixRule, Violation
    from ms_tune.job import Job
    from ms_tune.lint.checklist import Check
    from ms_tune.source.yaml import Position, SourceFile
    from ms_tune.text import Message

_ROUNDS = 20  # fixes that uncover other findings; more than this is a circle
_ONE_BY_ONE = 50  # fixes that are tried each on its own where all at once are refused


class Fixed(Record):
    """What became of a config's text."""

    text: str  # the text after all fixes
    made: int  # how many findings were fixed
    refused: int = 0  # how many fixes were not made, because the result would have been worse
    titles: tuple[Message, ...] = ()  # the title of each fix that was made


def fix_of(
    check: Check, job: Job, violation: Violation, params: Mapping[str, str]
) -> tuple[Fix | None, Message | None]:
    """The fix of a finding, not yet proved, or why there is none although the check has one.

    In a config that builds on others only what it says itself can be fixed; what is taken out of it must stand in none of the others,
    or it would show again.
    """
    source = job.source
    if check.severity is Severity.ERROR and not check.fixes and not violation.changes and check.remedy != "never":
        violation = _with_remedy(check, job, violation)
    if not source.others:
        return propose(check, source, violation, params)
    fix, unfixable = None, None
    if source.saying(violation.path) is source:
        fix, unfixable = propose(check, parse_source(source.text, source.path), violation, params)
    gone = (ChangeKind.REMOVE_KEY, ChangeKind.RENAME_KEY)
    paths = [one.path for one in fix.changes if one.kind in gone] if fix else [violation.path] * (not unfixable)
    for path in paths:
        for other in source.others:
            position = other.position(path)
            if position is not None:
                return None, msg("edits.other-file", file=other.path, line=position.value.line)
    return fix, unfixable


def _with_remedy(check: Check, job: Job, violation: Violation) -> Violation:
    """An error that has no fix of its own, with the job's remedy if that changes the place that the error is about.

    It is never a safe fix: which of several values its author wanted, nobody but the author knows.
    """
    if isinstance(job.written, CodeSource):
        return violation
    try:
        # What this place is about comes first: it names the fix.
        changes = sorted(job.remedy, key=lambda one: not _touches(one.path, violation.path))
    except MsTuneError:
        return violation
    if changes and (check.remedy == "anywhere" or _touches(changes[0].path, violation.path)):
        return violation._replace(changes=tuple(changes), safe=False)
    return violation


def _touches(one: KeyPath, other: KeyPath) -> bool:
    length = min(len(one), len(other))
    return length > 1 and one[:length] == other[:length]


def propose(
    check: Check, source: SourceFile, violation: Violation, params: Mapping[str, str]
) -> tuple[Fix | None, Message | None]:
    """The fix of a finding, not yet proved; or why there is none although the check has one."""
    refusal: Message | None = None
    rules = [rule for rule in check.fixes if not rule.messages or violation.message in rule.messages]
    for rule in (None,) if violation.changes else rules:
        try:
            if rule is None:
                return _fix_by_changes(source, violation.changes, safe=violation.safe), None
            if not rule.sections or str(violation.path[-1]) in rule.sections:
                return _fix_by_rule(rule, source, violation, params), None
        except EditRefusedError as error:
            refusal = refusal or error.message
    return None, refusal


def _fix_by_rule(rule: FixRule, source: SourceFile, violation: Violation, params: Mapping[str, str]) -> Fix:
    if isinstance(source, CodeSource):
        return source.fix(rule, violation)
    if rule.sections:
        key = str(violation.path[-1])
        changes, edits = moved(source, violation.path, rule.sections[key])
        title = msg("lint.fix.move-key", key=key, section=".".join(map(str, rule.sections[key])))
        return Fix(rule.safe, title, changes, edits)
    if rule.kind is None:
        raise EditRefusedError(msg("edits.not-here"))
    kind, path = rule.kind, rule.path or violation.path
    if kind is ChangeKind.SET_VALUE and source.get(path, MISSING) is MISSING:
        kind = ChangeKind.ADD_KEY  # what is set is not written yet: its default is what is wrong
    value = rule.value.format_map(params) if isinstance(rule.value, str) else rule.value
    change = ValueChange(kind, path, value, str(value)) if rule.spelled else ValueChange(kind, path, value)
    return _fix_by_changes(source, (change,), safe=rule.safe)


def _fix_by_changes(source: SourceFile, changes: tuple[ValueChange, ...], *, safe: bool) -> Fix:
    edits = tuple(edit for change in changes for edit in change.edits(source))
    if all(source.text[edit.start : edit.end] == edit.text for edit in edits):
        raise EditRefusedError(msg("edits.not-here"))  # what the fix would write stands there already
    return Fix(safe, title_of(changes[0]), changes, edits)


def proved(source: SourceFile, findings: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The findings; a fix that would do anything else than it says is taken away, with a note why."""
    fixes = [finding.fix for finding in findings if finding.fix]
    if not fixes or _together(source, fixes):
        return tuple(findings)
    return tuple(
        finding
        if finding.fix is None or _together(source, (finding.fix,))
        else finding._replace(fix=None, unfixable=msg("edits.unproven"))
        for finding in findings
    )


def apply_fixes(
    source: SourceFile,
    check_again: Callable[[SourceFile], Sequence[Diagnostic]],
    *,
    unsafe: bool = False,
    admits: Callable[[SourceFile, SourceFile, Sequence[Fix]], bool] | None = None,
) -> tuple[SourceFile, Fixed]:
    """Apply fixes, look again, and so on until there is nothing left to fix.

    Args:
        source: The config.
        check_again: Finds what is wrong with a config; only what it reports is fixed.
        unsafe: Whether to apply unsafe fixes, too.
        admits: Whether a config with some fixes is good enough to take the place of the one without; None if all are.
    """
    titles: list[Message] = []
    refused = 0
    seen = {source.text}
    for _ in range(_ROUNDS):
        wanted = [
            finding.fix for finding in check_again(source) if finding.fix is not None and (finding.fix.safe or unsafe)
        ]
        chosen = _choose(source, wanted)
        made = _admitted(source, chosen, admits)
        refused = len(chosen) - len(made)
        fixed = _made(source, made)
        if fixed is None or fixed.text in seen:
            break  # nothing to do, or two fixes undo each other: the author has to choose
        seen.add(fixed.text)
        source = fixed
        titles += [fix.title for fix in made]
    return source, Fixed(source.text, len(titles), refused, tuple(titles))


def _admitted(
    source: SourceFile,
    fixes: list[Fix],
    admits: Callable[[SourceFile, SourceFile, Sequence[Fix]], bool] | None,
) -> list[Fix]:
    """Fixes that make a config no worse: all of them if that is so of all at once, else those of which it is so one by one."""
    after = _made(source, fixes)
    if admits is None or after is None or admits(source, after, fixes):
        return fixes
    found: list[Fix] = []
    for fix in fixes[:_ONE_BY_ONE]:
        before, after = _made(source, found) or source, _made(source, [*found, fix])
        if after is not None and admits(before, after, (fix,)):
            found.append(fix)
    return found


def _made(source: SourceFile, fixes: Sequence[Fix]) -> SourceFile | None:
    """A config with fixes; None if there are none, or it could not be read."""
    if not fixes:
        return None
    text = apply_edits(source.text, (edit for fix in fixes for edit in fix.edits))
    try:
        if isinstance(source, CodeSource):
            return source.again(text)
        return parse_source(text, source.path).but(beside=source.beside, read_from=source.read_from)
    except ConfigError:
        return None


def _choose(source: SourceFile, fixes: Iterable[Fix]) -> list[Fix]:
    """Fixes that can be made at the same time, the first of those that touch each other."""
    chosen: list[Fix] = []
    for fix in fixes:
        if not any(overlap(fix.edits, other.edits) for other in chosen):
            chosen.append(fix)
    if not chosen or _together(source, chosen):
        return chosen
    return [fix for fix in chosen if _together(source, (fix,))][:1]


def _together(source: SourceFile, fixes: Sequence[Fix]) -> bool:
    """Whether all fixes at once do what they say: one proof in place of many."""
    if isinstance(source, CodeSource):
        return source.proves(fixes)
    changes = [change for fix in fixes for change in fix.changes]
    edits: list[TextEdit] = [edit for fix in fixes for edit in fix.edits]
    return prove(source, changes, edits)


def title_of(change: ValueChange) -> Message:
    """What a change does, in words."""
    key = last_key(change.path)
    if change.kind is ChangeKind.REMOVE_KEY:
        return msg("lint.fix.remove-key", key=key)
    value = change.value if change.kind is ChangeKind.RENAME_KEY else change.raw or spell(change.value)
    return msg(f"lint.fix.{change.kind.value}", key=key, value=value)


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


class Gate(Record):
    """What fixes of one file have to pass."""

    job_of: Callable[[SourceFile], Job]  # the job of the file with another text
    check: Callable[[SourceFile], Sequence[Diagnostic]]  # finds what is wrong with it

    def admits(self, before: SourceFile, after: SourceFile, fixes: Sequence[Fix]) -> bool:
        """Whether a config with these fixes is no worse, and the same to the framework if all of them are safe."""
        errors = self._errors(before)
        if any(count > errors[check] for check, count in self._errors(after).items()):
            return False
        if isinstance(before, CodeSource):
            return True
        old, new = self.job_of(before).alone, self.job_of(after).alone
        if old.dialect not in YAML_DIALECTS:
            return True
        if all(fix.safe for fix in fixes):
            meant = frozenset(str(change.path[-1]) for fix in fixes for change in fix.changes)
            return _reading(old, meant) == _reading(new, meant)
        return count_keys(after.data, old.dialect)[1] <= count_keys(before.data, old.dialect)[1]

    def _errors(self, source: SourceFile) -> Counter[str]:
        return Counter(finding.id for finding in self.check(source) if finding.severity is Severity.ERROR)


def _reading(job: Job, meant: frozenset[str]) -> object:
    """The fields of the model but those that the fixes name, and what each layer does, if that can be told; values without types."""
    facts = job.model.facts
    names = {facts.field_names.get(name, name) for name in facts.fields}
    names -= {facts.field_names.get(name, name) for name in meant}
    fields = {name: repr(job.model.value(name)) for name in names}
    try:
        plan = job.plan
    except MsTuneError:
        return fields, None
    return fields, (plan.placement, plan.layers, plan.failure is None)


def where_certain(
    findings: Iterable[Diagnostic], found_for: Callable[[str, str], Iterable[KeyPath]], releases: Sequence[str]
) -> tuple[Diagnostic, ...]:
    """The findings; what is not found for every release has no safe fix.

    Args:
        findings: What was found for the release that was taken because nobody named one.
        found_for: The key paths at which a check (by its id) finds something for a release.
        releases: The releases that the config may be for.
    """
    asked: dict[tuple[str, str], frozenset[KeyPath]] = {}

    def in_all(finding: Diagnostic) -> bool:
        for release in releases:
            key = finding.id, release
            if key not in asked:
                asked[key] = frozenset(found_for(*key))
            if finding.path not in asked[key]:
                return False
        return True

    return tuple(
        one._replace(fix=one.fix._replace(safe=False)) if one.fix and one.fix.safe and not in_all(one) else one
        for one in findings
    )
