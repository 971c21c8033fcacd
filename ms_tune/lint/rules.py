"""Describe each check for people, in one form for checks of checklists and the linter's own rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from ms_tune.diagnostics import Category, Family, Severity
from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.query import data_folder, served
from ms_tune.lint.checklist import Check, built_in, built_in_code, combined, read_checklist
from ms_tune.lint.engine import lint, matches
from ms_tune.lint.settings import BUILTIN_RULES, BuiltinRule
from ms_tune.source.yaml import parse_source
from ms_tune.text import Message, Text, msg

_LANGUAGES = {"environment": "sh", "python": "python"}  # of the examples of checks of code, by their checklist
_BRACES = re.compile(r"\{\{|\}\}|\{(\w+)\}")
# YAML joins folded lines with a space, which Chinese does not use.
_WIDE = "\u2e80-\u9fff\uff00-\uffef\u201c\u201d"
_FOLDED = re.compile(f"(?<=[{_WIDE}]) (?=[{_WIDE}])|(?<=[，。；：、！？）]) ")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A place in the framework's source that proves a check's claim."""

    framework: str  # such as `MindFormers`
    version: str  # the release, such as `1.9`
    file: str  # the path in its package or repository
    symbol: str = ""  # the class or function, such as `LayerSetting._check_inputs`; empty for the whole file


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleEntry:
    """The description of one check."""

    id: str  # `MST101`
    name: str  # `duplicate-key`
    severity: Severity  # the severity of its findings
    category: Category  # the kind of problem
    consequences: tuple[str, ...] = ()  # the possible effects on the run, depending on the finding
    title: Text  # the name as a sentence
    why: Text  # the effect of ignoring a finding
    help: Text  # the instructions for fixing it, with placeholders in angle brackets
    dialects: tuple[Dialect, ...] = tuple(Dialect)  # the dialects it applies to
    versions: str | None = None  # the framework versions it applies to; None for all
    profiles: tuple[str, ...] = ()  # the profiles that run it; empty for all
    opposite: str | None = None  # the check that requires the opposite in other profiles, if any
    family: Family | None = None  # its family, if any
    fix: str  # `safe`, `unsafe` or `none`
    evidence: tuple[Evidence, ...] = ()  # the places that prove the claim
    bad: str  # an example with the problem; may be empty
    good: str  # the same example, fixed
    language: str = "yaml"  # the language of the examples: `yaml`, `sh` or `python`


def all_rules(checklists: Iterable[Path] = ()) -> tuple[RuleEntry, ...]:
    """Return every rule by its id, including those of users' own checklists."""
    own = tuple(map(read_checklist, checklists))
    code = {check.id: (check, _LANGUAGES[kind]) for kind, checks in built_in_code().items() for check in checks}
    checks = combined((*built_in(), *(check for check, _ in code.values())), own)
    rules = [*map(_describe_builtin, BUILTIN_RULES)]
    opposites = _opposites(checks)
    for check in checks:
        language = "sh" if check.dialects == {Dialect.MEGATRON} else "yaml"
        rules.append(_rule(check, code[check.id][1] if check.id in code else language, opposites.get(check.id)))
    return tuple(sorted(rules, key=lambda rule: (not rule.id.startswith("MST"), rule.id)))


def readable(text: Text) -> Text:
    """Return a text with its parameters in angle brackets: ``write <number>``."""
    return Text(*(_BRACES.sub(lambda match: f"<{match[1]}>" if match[1] else match[0][0], words) for words in text))


def evidence_of(check: Check) -> tuple[Evidence, ...]:
    """Return the places that prove the claim of a check."""
    return tuple(Evidence(**item) for item in check.entry.get("evidence", ()))


def _opposites(checks: Iterable[Check]) -> dict[str, str]:
    """Return the name of the opposite check by id, in both directions."""
    names = {check.id: check.name for check in checks}
    pairs = [(check.id, check.opposite) for check in checks if check.opposite in names]
    return {one: names[other] for pair in pairs for one, other in (pair, pair[::-1])}


def unfolded(text: Text) -> Text:
    """Return a text without the spaces that YAML folding has inserted into its Chinese version."""
    return Text(text.en, _FOLDED.sub("", text.zh))


def _rule(check: Check, language: str, opposite: str | None) -> RuleEntry:
    kinds = {fix.safe for fix in check.fixes}
    return RuleEntry(
        id=check.id,
        name=check.name,
        severity=check.severity,
        category=check.category,
        consequences=tuple(dict.fromkeys(check.consequences.values())),
        title=unfolded(check.title),
        why=unfolded(check.why),
        help=unfolded(readable(check.help)),
        dialects=tuple(dialect for dialect in Dialect if dialect in check.dialects),
        versions=check.versions,
        profiles=tuple(sorted(check.profiles)),
        opposite=opposite,
        family=check.family,
        fix="safe" if True in kinds else "unsafe" if kinds else "none",
        evidence=evidence_of(check),
        bad=check.bad,
        good=check.good,
        language=language,
    )


def _describe_builtin(rule: BuiltinRule) -> RuleEntry:
    return RuleEntry(
        id=rule.id,
        name=rule.name,
        severity=rule.severity,
        category=rule.category,
        title=rule.text("title"),
        why=rule.text("why"),
        help=readable(rule.text("help")),
        fix="safe" if rule.name == "unused-ignore" else "none",
        bad=rule.bad,
        good=rule.good,
    )


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """Checks that belong together in the reference."""

    text: Text  # the introduction to them
    rules: tuple[RuleEntry, ...]  # the checks in reading order


@dataclass(frozen=True, slots=True)
class Topic:
    """One chapter of the reference."""

    id: str  # its name in links
    title: Text  # its heading
    text: Text  # its introduction
    groups: tuple[TopicGroup, ...]  # its groups of checks; none is empty

    @property
    def rules(self) -> tuple[RuleEntry, ...]:
        """Return all checks of the chapter in reading order."""
        return tuple(chain.from_iterable(group.rules for group in self.groups))


@dataclass(frozen=True, slots=True)
class CoursePart:
    """Chapters that answer one question about tuning a model."""

    title: Text  # the question
    text: Text  # the introduction to them
    topics: tuple[Topic, ...]  # the chapters in reading order; none is empty


def course(rules: Iterable[RuleEntry]) -> tuple[CoursePart, ...]:
    """Return all parts in reading order; checks in no group, such as a user's own, are in the last one."""
    values = yaml.safe_load((data_folder("checklists") / "reference" / "topics.yaml").read_bytes())
    left: dict[str, list[RuleEntry]] = {}
    for rule in rules:
        left.setdefault((rule.family or rule).name, []).append(rule)
    taken = {
        entry["id"]: [
            [rule for name in chain(*group["checks"]) for rule in left.pop(name, ())] for group in entry["groups"]
        ]
        for entry in values["topics"]
    }
    taken[values["topics"][-1]["id"]][-1] += chain(*left.values())
    topics = {entry["id"]: _topic(entry, taken[entry["id"]]) for entry in values["topics"]}
    parts = (
        CoursePart(
            _text(entry["title"]),
            _text(entry["text"]),
            tuple(topics[name] for name in entry["topics"] if topics[name].rules),
        )
        for entry in values["parts"]
    )
    return tuple(part for part in parts if part.topics)


def _topic(entry: Mapping[str, Any], rules: Iterable[Iterable[RuleEntry]]) -> Topic:
    groups = (TopicGroup(_text(group["text"]), tuple(some)) for group, some in zip(entry["groups"], rules, strict=True))
    return Topic(
        entry["id"], _text(entry["title"]), _text(entry["text"]), tuple(group for group in groups if group.rules)
    )


def _text(value: Mapping[str, str]) -> Text:
    return unfolded(Text(**value))


def wrong_examples(checklists: Iterable[Path]) -> Iterator[Message]:
    """Yield the problems with the examples of users' checks of configs, as each of their dialects reads them.

    Checks of other files are skipped, because their examples cannot be checked on their own.
    """
    for check in [check for file in checklists for check in read_checklist(file).checks]:
        for dialect in sorted(check.dialects.intersection(YAML_DIALECTS)):
            yield from _wrong(check, dialect)


def _wrong(check: Check, dialect: Dialect) -> Iterator[Message]:
    version = next((one for one in reversed(served(dialect)) if matches(one, check.versions)), None)
    if version is None:
        yield msg("rule.try.no-release", id=check.id, name=check.name, versions=check.versions)
        return
    profile = min(check.profiles, default=None)
    for kind, example in (("bad", check.bad), ("good", check.good)):
        try:
            found = lint(parse_source(example, Path(f"{check.id}.yaml")), dialect, [check], version, profile)
        except ConfigError as error:
            yield msg("rule.try.unreadable", id=check.id, name=check.name, kind=kind, reason=error.message)
            continue
        broken = next((one for one in found if one.trace), None)
        if broken is not None:
            reason = broken.trace.strip().rpartition("\n")[2]
            yield msg("rule.try.failed", id=check.id, name=check.name, kind=kind, reason=reason)
        elif bool(found) is not (kind == "bad"):
            yield msg(f"rule.try.{kind}", id=check.id, name=check.name, dialect=dialect.value)
