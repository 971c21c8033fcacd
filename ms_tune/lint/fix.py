"""Fixes: from what a checklist says about them to proved edits, and from edits to fixed files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ms_tune.diagnostics import Fix, last_key
from ms_tune.errors import ConfigError
from ms_tune.lint.code_source import CodeSource
from ms_tune.source.edit import ChangeKind, EditRefusedError, ValueChange, apply_edits, overlap, spell
from ms_tune.source.edit_proof import prove
from ms_tune.source.yaml import MISSING, parse_source
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ms_tune.diagnostics import Diagnostic, TextEdit
    from ms_tune.dialects.check_context import Violation
    from ms_tune.lint.checklist import Check, FixRule
    from ms_tune.source.yaml import SourceFile
    from ms_tune.text import Message

_ROUNDS = 20  # fixes that uncover other findings; more than this is a circle
_ONE_BY_ONE = 50  # fixes that are tried each on its own where all at once are refused


class Fixed(NamedTuple):
    """What became of a config's text."""

    text: str  # the text after all fixes
    made: int  # how many findings were fixed
    refused: int = 0  # how many fixes were not made, because the result would have been worse


def propose(
    check: Check, source: SourceFile, violation: Violation, params: Mapping[str, str]
) -> tuple[Fix | None, Message | None]:
    """The fix of a finding, not yet proved; or why there is none although the check has one."""
    if violation.changes:
        return _proposed(source, violation.changes, safe=violation.safe)
    refusal: Message | None = None
    for rule in check.fixes:
        if not rule.messages or violation.message in rule.messages:
            fix, reason = _by_rule(rule, source, violation, params)
            if fix is not None:
                return fix, None
            refusal = refusal or reason
    return None, refusal


def _by_rule(
    rule: FixRule, source: SourceFile, violation: Violation, params: Mapping[str, str]
) -> tuple[Fix | None, Message | None]:
    if isinstance(source, CodeSource):
        try:
            return source.fix(rule, violation), None
        except EditRefusedError as refusal:
            return None, refusal.message
    if rule.sections:
        return _moved(rule, source, violation)
    if rule.kind is None:
        return None, msg("edits.not-here")
    kind = rule.kind
    if kind is ChangeKind.SET_VALUE and source.get(rule.path or violation.path, MISSING) is MISSING:
        kind = ChangeKind.ADD_KEY  # what is set is not written yet: its default is what is wrong
    return _proposed(source, (_change(kind, rule, violation, params),), safe=rule.safe)


def _moved(rule: FixRule, source: SourceFile, violation: Violation) -> tuple[Fix | None, Message | None]:
    from ms_tune.lint.move import moved  # noqa: PLC0415 - seldom needed

    key = str(violation.path[-1])
    section = rule.sections.get(key)
    if section is None:
        return None, None
    try:
        changes, edits = moved(source, violation.path, section)
    except EditRefusedError as refusal:
        return None, refusal.message
    title = msg("lint.fix.move-key", key=key, section=".".join(map(str, section)))
    return Fix(rule.safe, title, changes, edits), None


def _proposed(source: SourceFile, changes: tuple[ValueChange, ...], *, safe: bool) -> tuple[Fix | None, Message | None]:
    try:
        edits = tuple(edit for change in changes for edit in change.edits(source))
    except EditRefusedError as refusal:
        return None, refusal.message
    if all(source.text[edit.start : edit.end] == edit.text for edit in edits):
        return None, msg("edits.not-here")  # what the fix would write stands there already
    return Fix(safe, title_of(changes[0]), changes, edits), None


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
    count = refused = 0
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
        source, count = fixed, count + len(made)
    return source, Fixed(source.text, count, refused)


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
        return source.again(text) if isinstance(source, CodeSource) else _again(source, text)
    except ConfigError:
        return None


def _again(source: SourceFile, text: str) -> SourceFile:
    """A config with another text; what was read of its model stays."""
    return parse_source(text, source.path).but(beside=source.beside, read_from=source.read_from)


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


def _change(kind: ChangeKind, rule: FixRule, violation: Violation, params: Mapping[str, str]) -> ValueChange:
    value = rule.value.format_map(params) if isinstance(rule.value, str) else rule.value
    path = violation.path if rule.path is None else rule.path
    if rule.spelled:
        return ValueChange(kind, path, value, str(value))
    return ValueChange(kind, path, value)


def title_of(change: ValueChange) -> Message:
    """What a change does, in words."""
    key = last_key(change.path)
    if change.kind is ChangeKind.REMOVE_KEY:
        return msg("lint.fix.remove-key", key=key)
    value = change.value if change.kind is ChangeKind.RENAME_KEY else change.raw or spell(change.value)
    return msg(f"lint.fix.{change.kind.value}", key=key, value=value)
