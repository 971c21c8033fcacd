"""Create fixes: turn a checklist's fix rules into verified edits, and apply edits to files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from ms_tune.diagnostics import Diagnostic, Fix, KeyPath, Severity, TextEdit, last_key
from ms_tune.dialects.check_context import CodeSource, FixRule, Violation
from ms_tune.enums import YAML_DIALECTS, ChangeKind
from ms_tune.errors import ConfigError, MsTuneError
from ms_tune.job import Job
from ms_tune.job.detect import count_keys
from ms_tune.records import Record
from ms_tune.source.edit import EditRefusedError, ValueChange, apply_edits, overlap, prove, spell
from ms_tune.source.yaml import MISSING, Position, SourceFile, parse_source
from ms_tune.text import Message, msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.lint.checklist import Check

_ROUNDS = 20  # the most rounds of fixing (a fix may uncover other findings); more is an endless loop
_MAX_SINGLE_FIXES = 50  # the most fixes to try one by one if all at once are rejected


class Fixed(Record):
    """The result of fixing a config's text."""

    text: str  # the text after all fixes
    made: int  # the number of findings fixed
    refused: int = 0  # the number of fixes rejected, because the result would have been worse
    titles: tuple[Message, ...] = ()  # the title of each fix that was made


def fix_of(
    check: Check, job: Job, violation: Violation, params: Mapping[str, str]
) -> tuple[Fix | None, Message | None]:
    """Return the fix of a finding, not yet verified, or the reason why the check's fix does not apply.

    In a config with bases, only settings in the file itself can be fixed. A key to remove must not be in any base, or it
    would still count.
    """
    source = job.source
    if check.severity is Severity.ERROR and not check.fixes and not violation.changes and check.remedy != "never":
        violation = _with_remedy(check, job, violation)
    if not source.others:
        return propose(check, source, violation, params)
    fix, unfixable = None, None
    if source.find_file(violation.path) is source:
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
    """Attach the job's remedy to an error without a fix, if the remedy changes the place of the error.

    This fix is never safe: only the author knows which of several values was intended.
    """
    if isinstance(job.original, CodeSource):
        return violation
    try:
        # The change at this place comes first, because it gives the fix its title.
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
    """Return the fix of a finding, not yet verified, or the reason why the check's fix does not apply."""
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
        changes, edits = move(source, violation.path, rule.sections[key])
        title = msg("lint.fix.move-key", key=key, section=".".join(map(str, rule.sections[key])))
        return Fix(rule.safe, title, changes, edits)
    if rule.kind is None:
        raise EditRefusedError(msg("edits.not-here"))
    kind, path = rule.kind, rule.path or violation.path
    if kind is ChangeKind.SET_VALUE and source.get(path, MISSING) is MISSING:
        kind = ChangeKind.ADD_KEY  # the setting is missing, and its default is the problem
    value = rule.value.format_map(params) if isinstance(rule.value, str) else rule.value
    change = ValueChange(kind, path, value, str(value)) if rule.spelled else ValueChange(kind, path, value)
    return _fix_by_changes(source, (change,), safe=rule.safe)


def _fix_by_changes(source: SourceFile, changes: tuple[ValueChange, ...], *, safe: bool) -> Fix:
    edits = tuple(edit for change in changes for edit in change.edits(source))
    if all(source.text[edit.start : edit.end] == edit.text for edit in edits):
        raise EditRefusedError(msg("edits.not-here"))  # the fix would not change the text
    return Fix(safe, title_of(changes[0]), changes, edits)


def proved(source: SourceFile, findings: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return the findings; replace any fix whose edits do not match its changes by a note."""
    fixes = [finding.fix for finding in findings if finding.fix]
    if not fixes or _prove_all(source, fixes):
        return tuple(findings)
    return tuple(
        finding
        if finding.fix is None or _prove_all(source, (finding.fix,))
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
    """Apply fixes and check again, until there is nothing left to fix.

    ``admits`` decides whether a config with some fixes may replace the one without; None accepts all.
    """
    titles: list[Message] = []
    refused = 0
    seen = {source.text}
    for _ in range(_ROUNDS):
        wanted = [
            finding.fix for finding in check_again(source) if finding.fix is not None and (finding.fix.safe or unsafe)
        ]
        chosen = _choose(source, wanted)
        made = _choose_admitted(source, chosen, admits)
        refused = len(chosen) - len(made)
        fixed = _apply_fixes(source, made)
        if fixed is None or fixed.text in seen:
            break  # nothing to do, or two fixes undo each other: the author must choose
        seen.add(fixed.text)
        source = fixed
        titles += [fix.title for fix in made]
    return source, Fixed(source.text, len(titles), refused, tuple(titles))


def _choose_admitted(
    source: SourceFile, fixes: list[Fix], admits: Callable[[SourceFile, SourceFile, Sequence[Fix]], bool] | None
) -> list[Fix]:
    """Return the fixes that do not make a config worse: all of them if possible, else those that pass one by one."""
    after = _apply_fixes(source, fixes)
    if admits is None or after is None or admits(source, after, fixes):
        return fixes
    found: list[Fix] = []
    for fix in fixes[:_MAX_SINGLE_FIXES]:
        before, after = _apply_fixes(source, found) or source, _apply_fixes(source, [*found, fix])
        if after is not None and admits(before, after, (fix,)):
            found.append(fix)
    return found


def _apply_fixes(source: SourceFile, fixes: Sequence[Fix]) -> SourceFile | None:
    """Return a config with fixes applied; None without fixes, or if the result cannot be read."""
    if not fixes:
        return None
    text = apply_edits(source.text, (edit for fix in fixes for edit in fix.edits))
    try:
        if isinstance(source, CodeSource):
            return source.with_text(text)
        return parse_source(text, source.path).replace(model_config=source.model_config, read_from=source.read_from)
    except ConfigError:
        return None


def _choose(source: SourceFile, fixes: Iterable[Fix]) -> list[Fix]:
    """Return fixes that can be applied at the same time; of overlapping ones, only the first."""
    chosen: list[Fix] = []
    for fix in fixes:
        if not any(overlap(fix.edits, other.edits) for other in chosen):
            chosen.append(fix)
    if not chosen or _prove_all(source, chosen):
        return chosen
    return [fix for fix in chosen if _prove_all(source, (fix,))][:1]


def _prove_all(source: SourceFile, fixes: Sequence[Fix]) -> bool:
    """Return whether the edits of all fixes, applied at once, change exactly the values that the fixes name."""
    if isinstance(source, CodeSource):
        return source.proves(fixes)
    changes = [change for fix in fixes for change in fix.changes]
    edits: list[TextEdit] = [edit for fix in fixes for edit in fix.edits]
    return prove(source, changes, edits)


def title_of(change: ValueChange) -> Message:
    """Return the title of a fix that makes a change."""
    key = last_key(change.path)
    if change.kind is ChangeKind.REMOVE_KEY:
        return msg("lint.fix.remove-key", key=key)
    value = change.value if change.kind is ChangeKind.RENAME_KEY else change.raw or spell(change.value)
    return msg(f"lint.fix.{change.kind.value}", key=key, value=value)


_REST_OF_LINE = r"[ \t]*(?:(?<=[ \t])#[^\r\n]*)?(?:\r\n|\r|\n)"
_BETWEEN = r"[ \t]*:(?:[ \t]+|[ \t]*(?:#[^\r\n]*)?[\r\n]\s*)(?:#[^\r\n]*\s*)*"
_LINE_START = r"(?m)^(?=[^\r\n])"


def move(source: SourceFile, path: KeyPath, section: KeyPath) -> tuple[tuple[ValueChange, ...], tuple[TextEdit, ...]]:
    """Return the changes and edits that move a key after the last key of an existing section that does not contain it."""
    target = (*section, path[-1])
    values = source.get(section)
    if not isinstance(values, dict) or not values:
        raise EditRefusedError(msg("edits.no-such-place"))
    if path[-1] in values:
        raise EditRefusedError(msg("edits.key-exists"))
    last = _find_position(source, (*section, next(reversed(values))))
    block, indent, end = _lines(source, _find_position(source, path))
    _, inner, after = _lines(source, last)
    if inner < indent or block.start < after <= end:
        raise EditRefusedError(msg("edits.not-a-line"))
    text = source.text[block.start : end]
    further_in = re.sub(_LINE_START, " " * (inner - indent), text)
    changes = (ValueChange(ChangeKind.REMOVE_KEY, path), ValueChange(ChangeKind.ADD_KEY, target, source.get(path)))
    return changes, (block, TextEdit(after, after, further_in))


def _find_position(source: SourceFile, path: KeyPath) -> Position:
    """Return the position of a key, if its text is not shared with other keys."""
    position = source.position(path)
    if position is None or position.key is None:
        raise EditRefusedError(msg("edits.no-such-place"))
    if position.uses or not re.compile(_BETWEEN).fullmatch(source.text, position.key.end, position.value.start):
        raise EditRefusedError(msg("edits.shared"))
    return position


def _lines(source: SourceFile, position: Position) -> tuple[TextEdit, int, int]:
    """Return the edit that removes the lines of a key and its value, their indentation, and the offset after them."""
    text, key = source.text, position.key
    rest = re.compile(_REST_OF_LINE).match(text, position.value.end)
    if key is None or rest is None:
        raise EditRefusedError(msg("edits.not-a-line"))
    start = max(text.rfind("\n", 0, key.start), text.rfind("\r", 0, key.start)) + 1
    if text[start : key.start].strip(" "):
        raise EditRefusedError(msg("edits.not-a-line"))
    return TextEdit(start, rest.end(), ""), key.start - start, rest.end()


class Gate(Record):
    """The conditions that fixes of one file must meet."""

    job_of: Callable[[SourceFile], Job]  # the job of the file with another text
    check: Callable[[SourceFile], Sequence[Diagnostic]]  # returns the findings in it

    def admits(self, before: SourceFile, after: SourceFile, fixes: Sequence[Fix]) -> bool:
        """Return whether fixes make a config no worse and, if all of them are safe, keep its meaning for the framework."""
        errors = self._errors(before)
        if any(count > errors[check] for check, count in self._errors(after).items()):
            return False
        if isinstance(before, CodeSource):
            return True
        old, new = self.job_of(before).without_base, self.job_of(after).without_base
        if old.dialect not in YAML_DIALECTS:
            return True
        if all(fix.safe for fix in fixes):
            named = frozenset(str(change.path[-1]) for fix in fixes for change in fix.changes)
            return _read_meaning(old, named) == _read_meaning(new, named)
        return count_keys(after.data, old.dialect)[1] <= count_keys(before.data, old.dialect)[1]

    def _errors(self, source: SourceFile) -> Counter[str]:
        return Counter(finding.id for finding in self.check(source) if finding.severity is Severity.ERROR)


def _read_meaning(job: Job, named: frozenset[str]) -> object:
    """Return how the framework reads the config: the fields that no fix names, and each layer's settings if known."""
    facts = job.model.facts
    names = {facts.field_names.get(name, name) for name in facts.fields}
    names -= {facts.field_names.get(name, name) for name in named}
    fields = {name: repr(job.model.value(name)) for name in names}
    try:
        plan = job.plan
    except MsTuneError:
        return fields, None
    return fields, (plan.placement, plan.layers, plan.failure is None)


def restrict_fixes(
    findings: Iterable[Diagnostic], find_paths: Callable[[str, str], Iterable[KeyPath]], releases: Sequence[str]
) -> tuple[Diagnostic, ...]:
    """Return the findings; a fix counts as unsafe if its finding does not occur for every release.

    ``find_paths`` returns the key paths of a check's findings (by its id) for a release.
    """
    asked: dict[tuple[str, str], frozenset[KeyPath]] = {}

    def in_all(finding: Diagnostic) -> bool:
        for release in releases:
            key = finding.id, release
            if key not in asked:
                asked[key] = frozenset(find_paths(*key))
            if finding.path not in asked[key]:
                return False
        return True

    return tuple(
        one._replace(fix=one.fix._replace(safe=False)) if one.fix and one.fix.safe and not in_all(one) else one
        for one in findings
    )
