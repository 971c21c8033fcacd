"""Runs checks over a config."""

from __future__ import annotations

import re
from functools import cache, partial
from importlib import import_module
from itertools import zip_longest
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, cast

from ms_tune.diagnostics import Category, Diagnostic, Related, Severity, dotted, last_key
from ms_tune.dialects.check_context import CheckContext
from ms_tune.errors import MsTuneError
from ms_tune.facts.releases import Release, default_release, release_or_default
from ms_tune.job.includes import BASE
from ms_tune.job.job import Job
from ms_tune.lint.checklist import FunctionTest, built_in
from ms_tune.lint.code_source import CodeSource
from ms_tune.lint.conditions import applies, violations
from ms_tune.lint.fix import propose, proved
from ms_tune.lint.own import TOO_MANY
from ms_tune.source.edit import ChangeKind
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, Message, lookup, msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

    from ms_tune.diagnostics import Fix, KeyPath, Location
    from ms_tune.dialects.check_context import Violation
    from ms_tune.enums import Dialect
    from ms_tune.lint.checklist import Check
    from ms_tune.source.edit import ValueChange
    from ms_tune.source.yaml import SourceFile
    from ms_tune.text import Text

    CheckFunction = Callable[[CheckContext], Iterable[Violation]]

_SHOWN = 60  # characters of a value in a message
_TOLD = 2000  # findings of one check in one file
_LOOKED_AT = 4000  # of what of it may be blanks
_LAST = "net.refused"
_REFUSALS = {"plan.refused", _LAST}
_OPERATORS = {">=": ge, "<=": le, "==": eq, "!=": ne, ">": gt, "<": lt}
_TERM = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)\s*")


def lint(
    source: SourceFile,
    dialect: Dialect,
    checks: Iterable[Check],
    version: str | None = None,
    profile: str | None = None,
) -> tuple[Diagnostic, ...]:
    """The findings in a config, in the order of its text.

    Args:
        source: The config.
        dialect: The dialect to read it as.
        checks: The checks to make; those of other dialects and versions are left out.
        version: The framework version to check for; by default the newest that the checks were verified with.
        profile: What the config is for; checks of other profiles are left out. Without one, those with an opposite are.
    """
    target = version or default_release(dialect)
    made = (check for check in checks if concerns(check, dialect, target, profile))
    return run_checks(made, job_of(source, dialect, target))


def job_of(source: SourceFile, dialect: Dialect, version: str) -> Job:
    """The job of what is read already, whatever it is: a config, arguments of a program, variables, Python code."""
    if isinstance(source, CodeSource):
        job = Job(source, dialect=dialect, release=Release("", version))
        job.whole = job.source = source
        return job
    job = Job(source, dialect=dialect, release=Release("", release_or_default(version, dialect)))
    for _ in (*job.follow_bases(), *job.follow_model()):
        pass  # a note is for who reads the file
    return job


def run_checks(checks: Iterable[Check], job: Job) -> tuple[Diagnostic, ...]:
    """What checks find in a job that they are all made for, in the order of the text."""
    made = sorted(checks, key=_asks_others)
    found: list[Diagnostic] = []
    met: dict[tuple[int, int], bool] = {}  # many checks are made on the same condition
    for check in made:
        read = job if check.whole else job.alone
        if (check.whole and job.lacks_bases) or not _met(check, read.source, met):
            continue
        try:
            found += _run(check, read, partial(_is_refused, check, read, made, found))
        except Exception as error:  # noqa: BLE001 - one broken check must not hide what the others found
            found.append(_broken(check, job.source, error))
    return proved(job.alone.source, sorted(found, key=lambda finding: (finding.location.start, finding.id)))


def concerns(check: Check, dialect: Dialect, version: str, profile: str | None) -> bool:
    """Whether a check is made for configs of a dialect, for a framework version, in a profile (or in any)."""
    fits = check.opposite is None if profile is None else not check.profiles or profile in check.profiles
    return fits and dialect in check.dialects and matches(version, check.versions)


def _met(check: Check, source: SourceFile, known: dict[tuple[int, int], bool]) -> bool:
    """Whether all conditions of a check hold; ``known`` has the answers of this run."""
    asked = id(check.when), id(source)
    met = known.get(asked)
    if met is None:
        met = known[asked] = all(applies(source, when) for when in check.when)
    return met


def _asks_others(check: Check) -> bool:
    """Whether a check asks what all others found, so that it has to come last."""
    return isinstance(check.test, FunctionTest) and f"{check.test.module}.{check.test.name}" == _LAST


def _run(check: Check, job: Job, refused: Callable[[], bool]) -> Iterator[Diagnostic]:
    if isinstance(check.test, FunctionTest):
        function = cast("CheckFunction", getattr(_module(check.test.module), check.test.name))
        context = CheckContext(job, check.test.options, refused)
        answers = function(context)
        if check.severity is Severity.ERROR and not check.fixes:
            answers = with_remedy(check, job, answers)
    else:
        answers = violations(job.source, check.test)
    for number, violation in enumerate(answers):
        if number == _TOLD:
            yield _too_many(check, job.source)
            return
        yield _finding(check, job.source, violation)


@cache
def _module(name: str) -> ModuleType:
    return import_module(f"ms_tune.lint.checks.{name}")


def _is_refused(check: Check, job: Job, made: Sequence[Check], found: Sequence[Diagnostic]) -> bool:
    """Whether a check of another module finds an error, be it made here or not."""

    def is_other(one: Check) -> bool:
        return one.severity is Severity.ERROR and not (
            isinstance(one.test, FunctionTest)
            and isinstance(check.test, FunctionTest)
            and one.test.module == check.test.module
        )

    others = {one.id for one in made if is_other(one)}
    if any(one.id in others for one in found):
        return True
    left = (one for one in built_in(job.dialect) if is_other(one) and one.id not in others)
    return bool(run_checks((one for one in left if concerns(one, job.dialect, job.release.version, None)), job))


def _fix(
    check: Check, source: SourceFile, violation: Violation, params: Mapping[str, str]
) -> tuple[Fix | None, Message | None]:
    """The fix of a finding; in a config that builds on others only what it says itself can be fixed.

    What is taken out of it must stand in none of the others, or it would show again.
    """
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


def _finding(check: Check, source: SourceFile, violation: Violation) -> Diagnostic:
    file = source.saying(violation.path)
    position = file.nearest(violation.path)
    span = position.value
    if violation.span is not None:
        span = violation.span
    elif file is not source:
        span = source.nearest((BASE,)).value
    elif (violation.at_key or span.start == span.end) and position.key is not None:
        span = position.key
    params = {
        "key": last_key(violation.path),
        "path": dotted(violation.path),
        "value": _shown(file, position.definition),
        **{name: str(value) for name, value in violation.params.items()},
    }
    places = [
        (other.key or other.value, text)
        for other, text in ((source.nearest(path), text) for path, text in violation.related)
        if not source.others or other.key
    ]
    if file is not source:
        params |= {"file": str(file.path), "line": str((position.key or position.value).line)}
        places.append((span, "base-value"))
    elif position.value != position.definition and violation.span is None:
        places.append((position.definition, "definition"))
    related = [
        Related(place, Message("", params, check.messages[text] if text in check.messages else lookup(f"lint.{text}")))
        for place, text in (*places, *violation.related_spans)
    ]
    fix, unfixable = _fix(check, source, violation, params)
    finding = Diagnostic(
        id=check.id,
        name=check.name,
        severity=check.severity,
        category=check.category,
        path=violation.path,
        location=span,
        message=Message("", params, check.messages[violation.message]),
        help=Message("", params, check.help),
        related=tuple(related),
        fix=fix,
        unfixable=unfixable,
        family=check.family,
        consequence=check.consequences.get(violation.message, check.consequences.get("default")),
    )
    for message in (finding.message, Message("", params, check.help), *(one.message for one in related)):
        _try(message.text, frozenset(params))
    return finding


@cache
def _try(text: Text, params: frozenset[str]) -> None:
    """A text with a parameter that is not there must show up here, as a broken check, and not when it is printed."""
    for language in Language:
        Message("", dict.fromkeys(params, ""), text).say(language)


def _broken(check: Check, source: SourceFile, error: Exception) -> Diagnostic:
    import traceback  # noqa: PLC0415 - start-up time

    params = {"id": check.id, "name": check.name, "error": f"{type(error).__name__}: {error}"}
    return Diagnostic(
        id="MST001",
        name="internal-error",
        severity=Severity.ERROR,
        category=Category.CORRECTNESS,
        path=(),
        location=source.nearest(()).value,
        message=Message("", params, lookup("lint.internal-error")),
        trace="".join(traceback.format_exception(error)),
    )


def _too_many(check: Check, source: SourceFile) -> Diagnostic:
    """What is said in place of the findings beyond those that are told."""
    return Diagnostic(
        id=TOO_MANY.id,
        name=TOO_MANY.name,
        severity=TOO_MANY.severity,
        category=TOO_MANY.category,
        path=(),
        location=source.nearest(()).value,
        message=msg("lint.too-many-findings", id=check.id, name=check.name, limit=str(_TOLD)),
    )


def _shown(source: SourceFile, span: Location) -> str:
    # Of a text that is long, such as a whole file, the beginning: there is one for each finding.
    text = " ".join(source.text[span.start : min(span.end, span.start + _LOOKED_AT)].split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def with_remedy(check: Check, job: Job, violations: Iterable[Violation]) -> Iterator[Violation]:
    """Violations of an error that has no fix of its own, with the remedy if it changes the place that they are about.

    It is never a safe fix: which of several values its author wanted, nobody but the author knows.
    """
    refusal = f"{check.test.module}.{check.test.name}" in _REFUSALS  # type: ignore[union-attr]  # the caller has looked
    for violation in violations:
        if not violation.changes:
            # What this place is about comes first: it names the fix.
            changes = sorted(_remedy(job), key=lambda one: not _touches(one.path, violation.path))
            if changes and (refusal or _touches(changes[0].path, violation.path)):
                yield violation._replace(changes=tuple(changes), safe=False)
                continue
        yield violation


def _touches(one: KeyPath, other: KeyPath) -> bool:
    length = min(len(one), len(other))
    return length > 1 and one[:length] == other[:length]


def _remedy(job: Job) -> tuple[ValueChange, ...]:
    if isinstance(job.written, CodeSource):
        return ()
    try:
        return job.remedy
    except MsTuneError:
        return ()


@cache
def matches(version: str, versions: str | None) -> bool:
    """Whether a version such as ``1.9`` lies in a range such as ``>=1.7,<2``.

    Raises:
        ValueError: The range is not one.
    """
    if versions is None:
        return True
    terms = [_TERM.fullmatch(term) for term in versions.split(",")]
    if not all(terms):
        raise ValueError(versions)
    return all(_OPERATORS[term[1]](_compare(version, term[2]), 0) for term in terms if term)


def _compare(one: str, other: str) -> int:
    pairs = zip_longest(map(int, one.split(".")), map(int, other.split(".")), fillvalue=0)
    return next((-1 if left < right else 1 for left, right in pairs if left != right), 0)
