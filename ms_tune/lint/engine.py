"""Run checks on a job."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from functools import cache, partial
from importlib import import_module
from itertools import chain
from operator import eq, ge, gt, le, lt, ne

from ms_tune.diagnostics import Category, Diagnostic, KeyPath, Location, Related, Severity, dotted, last_key
from ms_tune.dialects.check_context import CheckContext, CodeSource, Violation
from ms_tune.enums import Dialect
from ms_tune.errors import trace_of
from ms_tune.facts.keys import BASE
from ms_tune.facts.query import Release, default_release, order, release_or_default
from ms_tune.job import Job
from ms_tune.lint.checklist import Check, built_in
from ms_tune.lint.expressions import Scope, evaluate, find_refused, is_true
from ms_tune.lint.fix import fix_of, proved
from ms_tune.lint.settings import TOO_MANY
from ms_tune.lint.survey import find_oddities
from ms_tune.source.yaml import SourceFile
from ms_tune.text import Language, Message, Text, lookup, msg

_SHOWN = 60  # characters of a value in a message
_MAX_FINDINGS = 2000  # the most findings of one check to report per file
_LOOKED_AT = 4000  # the most characters to read for it, including whitespace
_COMPARISONS = {">=": ge, "<=": le, "==": eq, "!=": ne, ">": gt, "<": lt}
_ZEROS, _TERM = r"(?:\.0+)+$", r"\s*(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)\s*"


def lint(
    source: SourceFile,
    dialect: Dialect,
    checks: Iterable[Check],
    version: str | None = None,
    profile: str | None = None,
) -> tuple[Diagnostic, ...]:
    """Return the findings in a config, in text order.

    Checks of other profiles are skipped; without a profile, checks with an opposite are.
    """
    target = version or default_release(dialect)
    made = (check for check in checks if concerns(check, dialect, target, profile))
    return run_checks(made, job_of(source, dialect, target))


def job_of(source: SourceFile, dialect: Dialect, version: str) -> Job:
    """Return the job of a source that was already read: a config, program arguments, variables, or Python code."""
    if isinstance(source, CodeSource):
        job = Job(source, dialect=dialect, release=Release("", version))
        job.merged = job.source = source
        return job
    job = Job(source, dialect=dialect, release=Release("", release_or_default(version, dialect)))
    for _ in (*job.follow_bases(), *job.follow_model()):
        pass  # the notes are only for the reader of the file
    return job


def run_checks(checks: Iterable[Check], job: Job) -> tuple[Diagnostic, ...]:
    """Return the findings of checks that all apply to a job, in text order."""
    made = [check for check in checks if not (check.checks_merged and job.lacks_bases)]
    found: list[Diagnostic] = []
    last: list[tuple[Check, Job]] = []
    for check in made:
        read = job if check.checks_merged else job.without_base
        if check.keys and read.source.key_names.isdisjoint(check.keys):
            continue
        if check.runs_last:
            last.append((check, read))
        else:
            found += _run_check(check, read)
    for check, read in last:
        error_paths = {one.path for one in found if one.severity is Severity.ERROR}
        more = _run_check(check, read, partial(_is_refused, check, read, made, found), error_paths)
        if check.function is None:  # rows that were harvested: a check of the place says more about it
            taken = {one.path for one in found if one.severity is not Severity.INFO}
            more = [one for one in more if one.path not in taken]
        found += more
    if not found:
        return ()
    found.sort(key=lambda finding: (finding.location.start, finding.id))
    if any(finding.fix for finding in found):
        return proved(job.without_base.source, found)
    return tuple(found)


def concerns(check: Check, dialect: Dialect, version: str, profile: str | None) -> bool:
    """Return whether a check applies to a dialect, a framework version and a profile (None: no profile)."""
    fits = check.opposite is None if profile is None else not check.profiles or profile in check.profiles
    return fits and dialect.value in check.dialect_names and matches(version, check.versions)


def _run_check(
    check: Check, job: Job, refused: Callable[..., bool] = bool, error_paths: Container[KeyPath] = ()
) -> list[Diagnostic]:
    """Return the findings of one check; it can call ``refused`` to learn whether other checks find an error.

    Tests about one of the ``error_paths`` are left out: another check has refused that setting.
    """
    found: list[Diagnostic] = []
    try:
        if check.odd and find_oddities(job).keys().isdisjoint(check.odd):
            return []
        context = CheckContext(job, check.options, refused)
        if check.when is not None and not is_true(evaluate(check.when, Scope(context, {}, {}))):
            return []
        tests = check.tests
        if error_paths:
            tests = [
                one for one in tests if all(context.find_setting(at) not in error_paths for at in one.get("at", ()))
            ]
        violations: Iterable[Violation] = chain.from_iterable(map(partial(find_refused, context), tests))
        if check.function is not None:
            module, name = check.function
            violations = getattr(import_module(module), name)(context)
        for violation in violations:
            if len(found) == _MAX_FINDINGS:
                return [*found, _too_many(check, job.source)]
            found.append(_finding(check, job, violation))
    except Exception as error:  # noqa: BLE001 - one crashed check must not hide the findings of others
        found.append(_broken(check, job.source, error))
    return found


def _is_refused(check: Check, job: Job, made: Sequence[Check], found: Sequence[Diagnostic], *ids: str) -> bool:
    """Return whether a check of the ``ids`` finds something, or, without ids, any check of another module finds an error."""

    def is_relevant(one: Check) -> bool:
        if ids:
            return one.id in ids
        same_module = one.function is not None and check.function is not None and one.function[0] == check.function[0]
        return one.severity is Severity.ERROR and not same_module

    others = {one.id for one in made if is_relevant(one)}
    if any(one.id in others for one in found):
        return True
    left = (one for one in built_in(job.dialect) if is_relevant(one) and one.id not in others)
    return bool(run_checks((one for one in left if concerns(one, job.dialect, job.release.version, None)), job))


def _finding(check: Check, job: Job, violation: Violation) -> Diagnostic:
    source = job.source
    file = source.find_file(violation.path)
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
        fix, unfixable = fix_of(check, job, violation, params)
    finding = Diagnostic(
        id=check.id,
        name=check.name,
        severity=Severity.WARNING if check.severity is Severity.ERROR and not violation.is_certain else check.severity,
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
    """Render a finding's text, so that a missing parameter shows as a crashed check instead of a failed output."""
    for language in Language:
        Message("", dict.fromkeys(params, ""), text).say(language)


def _broken(check: Check, source: SourceFile, error: Exception) -> Diagnostic:
    params = {"id": check.id, "name": check.name, "error": f"{type(error).__name__}: {error}"}
    return Diagnostic(
        id="MST001",
        name="internal-error",
        severity=Severity.ERROR,
        category=Category.CORRECTNESS,
        path=(),
        location=source.nearest(()).value,
        message=Message("", params, lookup("lint.internal-error")),
        trace=trace_of(error),
    )


def _too_many(check: Check, source: SourceFile) -> Diagnostic:
    """Return the diagnostic that replaces the findings beyond the limit."""
    return Diagnostic(
        id=TOO_MANY.id,
        name=TOO_MANY.name,
        severity=TOO_MANY.severity,
        category=TOO_MANY.category,
        path=(),
        location=source.nearest(()).value,
        message=msg("lint.too-many-findings", id=check.id, name=check.name, limit=str(_MAX_FINDINGS)),
    )


def _shown(source: SourceFile, span: Location) -> str:
    # Only the beginning of a long text such as a whole file, because this runs for each finding.
    text = " ".join(source.text[span.start : min(span.end, span.start + _LOOKED_AT)].split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


@cache
def matches(version: str, versions: str | None) -> bool:
    """Return whether a version such as ``1.9`` is in a range such as ``>=1.7,<2``."""
    wanted = order(re.sub(_ZEROS, "", version))
    for text in versions.split(",") if versions is not None else ():
        term = re.fullmatch(_TERM, text)
        if term is None:
            raise ValueError(versions)
        if not _COMPARISONS[term[1]](wanted, order(re.sub(_ZEROS, "", term[2]))):
            return False
    return True
