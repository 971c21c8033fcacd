"""What a fix has to pass before it is made, beyond doing to the values what it says.

A safe fix leaves everything alone that the framework makes of the config: the fields of its model and what its layers do.
What a check finds for one release only is fixed safely only where that release is certain. A fix that is not safe is
refused where the config would have more errors or more unknown keys than before.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.diagnostics import Severity
from ms_tune.enums import YAML_DIALECTS
from ms_tune.errors import MsTuneError
from ms_tune.job.detect import unknown_keys
from ms_tune.lint.code_source import CodeSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ms_tune.diagnostics import Diagnostic, Fix, KeyPath
    from ms_tune.job.job import Job
    from ms_tune.source.yaml import SourceFile


class Gate(NamedTuple):
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
        return unknown_keys(after.data, old.dialect) <= unknown_keys(before.data, old.dialect)

    def _errors(self, source: SourceFile) -> Counter[str]:
        return Counter(finding.id for finding in self.check(source) if finding.severity is Severity.ERROR)


def _reading(job: Job, meant: frozenset[str]) -> object:
    """The fields of the model but those that the fixes name, and what each layer does, if that can be told; values without types."""
    facts = job.model.facts
    names = {facts.canonical(name) for name in facts.fields} - set(map(facts.canonical, meant))
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
