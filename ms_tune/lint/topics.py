"""The chapters of the rule reference: what the checks of one subject have in common, and in what order to read them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from ms_tune.lint.cache import read_values
from ms_tune.lint.rules import unfolded
from ms_tune.resources import data_folder
from ms_tune.texts import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.lint.rules import Rule


@dataclass(frozen=True, slots=True)
class Topic:
    """One chapter.

    Args:
        id: Its name in links.
        title: Its heading.
        text: What there is to know before reading about single checks.
        rules: The checks in reading order.
    """

    id: str
    title: Text
    text: Text
    rules: tuple[Rule, ...]


def by_topic(rules: Iterable[Rule]) -> tuple[Topic, ...]:
    """The chapters with their rules; those that no chapter names, such as a user's own, are in the last one."""
    left = {rule.name: rule for rule in rules}
    entries = read_values(data_folder("checklists") / "reference" / "topics.yaml")["topics"]
    named = [[left.pop(name) for name in chain(*entry["checks"]) if name in left] for entry in entries]
    named[-1] += left.values()
    return tuple(
        Topic(entry["id"], Text(**entry["title"]), unfolded(Text(**entry["text"])), tuple(some))
        for entry, some in zip(entries, named, strict=True)
        if some
    )
