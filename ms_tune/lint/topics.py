"""The rule reference as a course: parts of chapters, and in each what the checks of one subject have in common."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from ms_tune.lint.cache import read_values
from ms_tune.lint.rules import unfolded
from ms_tune.resources import data_folder
from ms_tune.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ms_tune.lint.rules import RuleEntry


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """Checks that are read together."""

    text: Text  # the one thing to know before reading about them
    rules: tuple[RuleEntry, ...]  # the checks in reading order


@dataclass(frozen=True, slots=True)
class Topic:
    """One chapter."""

    id: str  # its name in links
    title: Text  # its heading
    text: Text  # what there is to know before reading about single checks
    groups: tuple[TopicGroup, ...]  # its checks; none is empty

    @property
    def rules(self) -> tuple[RuleEntry, ...]:
        """All checks of the chapter in reading order."""
        return tuple(chain.from_iterable(group.rules for group in self.groups))


@dataclass(frozen=True, slots=True)
class CoursePart:
    """Chapters that answer one question of somebody who tunes a model."""

    title: Text  # the question
    text: Text  # what the reader learns
    topics: tuple[Topic, ...]  # the chapters in reading order; none is empty


def course(rules: Iterable[RuleEntry]) -> tuple[CoursePart, ...]:
    """All parts in reading order; checks that no group names, such as a user's own, are in the last group."""
    values = read_values(data_folder("checklists") / "reference" / "topics.yaml")
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
