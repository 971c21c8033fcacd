"""Runs checks over a job."""

from __future__ import annotations

import re
from functools import cache, partial
from importlib import import_module
from itertools import zip_longest
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any, cast

from ms_tune.diagnostics import Category, Diagnostic, Related, Severity, dotted, last_key
from ms_tune.dialects.check_context import CheckContext, CodeSource, Violation
from ms_tune.facts.keys import BASE
from ms_tune.facts.models import UNKNOWN, is_legacy
from ms_tune.facts.releases import Release, default_release, release_or_default
from ms_tune.job.job import Job
from ms_tune.lint.checklist import Expectation, FunctionTest, Refusal, built_in
from ms_tune.lint.expressions import Expression
from ms_tune.lint.settings import TOO_MANY
from ms_tune.source.yaml import MISSING, find_values, is_same
from ms_tune.text import Language, Message, lookup, msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ms_tune.diagnostics import Location
    from ms_tune.enums import Dialect
    from ms_tune.lint.checklist import Check, When
    from ms_tune.source.yaml import SourceFile
    from ms_tune.text import Text

    CheckFunction = Callable[[CheckContext], Iterable[Violation]]

_SHOWN = 60  # characters of a value in a message
_TOLD = 2000  # findings of one check in one file
_LOOKED_AT = 4000  # of what of it may be blanks
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
    made = [check for check in checks if not (check.whole and job.lacks_bases)]
    found: list[Diagnostic] = []
    last: list[tuple[Check, Job]] = []
    for check in made:
        read = job if check.whole else job.alone
        if check.keys and read.source.key_names.isdisjoint(check.keys):
            continue
        if not all(_applies(read, when) for when in check.when):
            continue
        if isinstance(check.test, FunctionTest) and check.test.asks_others:
            last.append((check, read))
        else:
            found += _run_check(check, read)
    for check, read in last:
        found += _run_check(check, read, partial(_is_refused, check, read, made, found))
    found.sort(key=lambda finding: (finding.location.start, finding.id))
    if any(finding.fix for finding in found):
        from ms_tune.lint.fix import proved  # noqa: PLC0415 - most files need none

        return proved(job.alone.source, found)
    return tuple(found)


def concerns(check: Check, dialect: Dialect, version: str, profile: str | None) -> bool:
    """Whether a check is made for configs of a dialect, for a framework version, in a profile (or in any)."""
    fits = check.opposite is None if profile is None else not check.profiles or profile in check.profiles
    return fits and check.is_about(dialect) and matches(version, check.versions)


def _run_check(check: Check, job: Job, refused: Callable[[], bool] = bool) -> list[Diagnostic]:
    """What one check finds; ``refused`` tells it whether others find an error."""
    found: list[Diagnostic] = []
    try:
        for violation in _violations(check, job, refused):
            if len(found) == _TOLD:
                return [*found, _too_many(check, job.source)]
            found.append(_finding(check, job, violation))
    except Exception as error:  # noqa: BLE001 - one broken check must not hide what the others found
        found.append(_broken(check, job.source, error))
    return found


def _violations(check: Check, job: Job, refused: Callable[[], bool]) -> Iterable[Violation]:
    test = check.test
    if isinstance(test, FunctionTest):
        function = cast("CheckFunction", getattr(import_module(test.module), test.name))
        return function(CheckContext(job, test.options, refused))
    if isinstance(test, Refusal):
        return _refused_together(CheckContext(job, {}), test)
    return _unmet(job.source, test)


def _unmet(source: SourceFile, test: Expectation) -> Iterator[Violation]:
    """The values that do not meet a declared check; a mapping that is not there at all requires nothing."""
    for pattern in test.paths:
        if test.condition == "required":
            for path, value in find_values(source.data, pattern[:-1]):
                if isinstance(value, dict) and pattern[-1] not in value:
                    yield Violation((*path, pattern[-1]), at_key=True)
            continue
        for path, value in find_values(source.data, pattern):
            if not _meets(value, test.condition, test.operand):
                yield Violation(path, at_key=test.condition == "forbidden")


def _applies(job: Job, when: When) -> bool:
    """Whether a precondition holds. A null is a missing value, as it is for the frameworks."""
    path, kind, operand, default = when
    if kind == "legacy":
        return is_legacy(job.source.data) is operand
    if kind == "holds":
        return _is_true(Expression(*operand).value(CheckContext(job, {}).value))
    value = job.source.get(path, MISSING)
    return _meets(default if value is None or value is MISSING else value, kind, operand)


def _meets(value: object, kind: str, operand: Any) -> bool:  # noqa: ANN401 - what a condition compares with
    """Whether a value (or :data:`MISSING`) is what it has to be."""
    if kind in ("forbidden", "required"):
        return (value is MISSING) is (kind == "forbidden") or operand is False
    if kind == "schema":
        import jsonschema  # noqa: PLC0415 - slow to import, and only in checklists of users' own

        return value is MISSING or bool(jsonschema.Draft202012Validator(operand).is_valid(value))
    one_of = [operand] if kind == "equals" else operand
    return any(is_same(value, item) for item in one_of) is (kind != "not-one-of")


def _refused_together(context: CheckContext, test: Refusal) -> Iterator[Violation]:
    """Settings that are refused together. Where something is not known that decides it, nothing is said."""
    refuse, given, defaults, at, related = test
    names = tuple(dict.fromkeys((*refuse.names, *(given.names if given else ()))))
    values = {name: context.value(name) for name in names}
    values |= {name: value for name, value in defaults.items() if values.get(name) is UNKNOWN}
    if not all(_is_true(one.value(values.__getitem__)) for one in (given, refuse) if one is not None):
        return
    at = at or tuple(refuse.names)
    places = {name: place for name in (*at, *names) if (place := context.place_of(name))}
    # What of a network is refused is told at its own settings, or else at the section.
    first = next((name for name in (at if at[0].startswith("network.") else places) if name in places), None)
    others = [places[name] for name in refuse.names if name in places and name != first] if related else []
    unwritten = context.section if at[0].startswith("network.") else tuple(at[0].split("."))
    yield Violation(
        places[first] if first else unwritten,
        params={name.rpartition(".")[2]: "" if value is UNKNOWN else value for name, value in values.items()},
        related=tuple((path, str(related)) for path in others),
    )


def _is_true(value: object) -> bool:
    return value is not UNKNOWN and bool(value)


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


def _finding(check: Check, job: Job, violation: Violation) -> Diagnostic:
    source = job.source
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
    fix, unfixable = None, None
    if check.fixes or violation.changes or check.severity is Severity.ERROR:
        from ms_tune.lint.fix import fix_of  # noqa: PLC0415 - most files need none

        fix, unfixable = fix_of(check, job, violation, params)
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
