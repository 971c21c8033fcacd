"""Runs checks over a config."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from ms_tune.config.follow import BASE, with_bases
from ms_tune.errors import ConfigError
from ms_tune.frameworks.releases import default_release
from ms_tune.lint.checklist import Function
from ms_tune.lint.conditions import applies, violations
from ms_tune.lint.context import Context
from ms_tune.lint.finding import Category, Finding, Related, Severity, Wording, dotted, last_key
from ms_tune.lint.fix import propose, proved
from ms_tune.lint.remedy import with_remedy
from ms_tune.lint.versions import matches
from ms_tune.texts import Language, lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ms_tune.config.source import SourceFile, Span
    from ms_tune.frameworks.dialect import Dialect
    from ms_tune.lint.checklist import Check
    from ms_tune.lint.context import Violation

    CheckFunction = Callable[[Context], Iterable[Violation]]

_SHOWN = 60  # characters of a value in a message


def lint(
    source: SourceFile,
    dialect: Dialect,
    checks: Iterable[Check],
    version: str | None = None,
    profile: str | None = None,
) -> tuple[Finding, ...]:
    """The findings in a config, in the order of its text.

    Args:
        source: The config.
        dialect: The dialect to read it as.
        checks: The checks to make; those of other dialects and versions are left out.
        version: The framework version to check for; by default the newest that the checks were verified with.
        profile: What the config is for; checks of other profiles are left out. Without one, those with an opposite are.
    """
    target = version or default_release(dialect)
    found: list[Finding] = []
    checks = tuple(checks)
    whole = _whole(source) if any(check.whole for check in checks) else None
    for check in checks:
        read = whole if check.whole else source
        if read is None or not concerns(check, dialect, target, profile):
            continue
        try:
            found += _run(check, read, dialect, target)
        except Exception as error:  # noqa: BLE001 - one broken check must not hide what the others found
            found.append(_broken(check, source, error))
    return proved(source, sorted(found, key=lambda finding: (finding.span.start, finding.id)))


def concerns(check: Check, dialect: Dialect, version: str, profile: str | None) -> bool:
    """Whether a check is made for configs of a dialect, for a framework version, in a profile (or in any)."""
    fits = check.opposite is None if profile is None else not check.profiles or profile in check.profiles
    return fits and dialect in check.dialects and matches(version, check.versions)


def _whole(source: SourceFile) -> SourceFile | None:
    """The config with the settings of its ``base_config``; None if they cannot be read."""
    try:
        return with_bases(source)
    except ConfigError:
        return None


def _run(check: Check, source: SourceFile, dialect: Dialect, version: str) -> Iterator[Finding]:
    if not all(applies(source, when) for when in check.when):
        return
    if isinstance(check.test, Function):
        module = import_module(f"ms_tune.lint.checks.{check.test.module}")
        function = cast("CheckFunction", getattr(module, check.test.name))
        context = Context(source, dialect, check.test.options, version)
        answers = with_remedy(check, context, function(context))
    else:
        answers = violations(source, check.test)
    for violation in answers:
        yield _finding(check, source, violation)


def _finding(check: Check, source: SourceFile, violation: Violation) -> Finding:
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
        Related(place, Wording(check.messages[text] if text in check.messages else lookup(f"lint.{text}"), params))
        for place, text in (*places, *violation.related_spans)
    ]
    # What a change of one file comes to depends on the others, so none is proposed.
    fix, unfixable = (None, None) if source.others else propose(check, source, violation, params)
    finding = Finding(
        id=check.id,
        name=check.name,
        severity=check.severity,
        category=check.category,
        path=violation.path,
        span=span,
        message=Wording(check.messages[violation.message], params),
        help=Wording(check.help, params),
        related=tuple(related),
        fix=fix,
        unfixable=unfixable,
    )
    for wording in (finding.message, Wording(check.help, params), *(one.message for one in related)):
        # A text with a parameter that is not there must show up here, as a broken check, and not when it is printed.
        for language in Language:
            wording.say(language)
    return finding


def _broken(check: Check, source: SourceFile, error: Exception) -> Finding:
    params = {"id": check.id, "name": check.name, "error": f"{type(error).__name__}: {error}"}
    return Finding(
        id="MST001",
        name="internal-error",
        severity=Severity.WARNING,
        category=Category.CORRECTNESS,
        path=(),
        span=source.nearest(()).value,
        message=Wording(lookup("lint.internal-error"), params),
    )


def _shown(source: SourceFile, span: Span) -> str:
    text = " ".join(source.text[span.start : span.end].split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
