"""The rule reference: one page a check, in English and Chinese side by side, and a table of contents in each language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.report.rule_contents import PAGES, contents
from ms_tune.text import Language, Text, lookup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ms_tune.lint.checklist import Evidence
    from ms_tune.lint.rules import CoursePart, RuleEntry, Topic

MARK = "<!-- Written by `ms-tune rule --markdown`; change the checklists, not this page. -->"


def reference(parts: Sequence[CoursePart]) -> dict[str, str]:
    """Every page by its file name."""
    pages = {name: f"{MARK}\n{contents(parts, language)}" for language, name in PAGES.items()}
    for part in parts:
        for topic in part.topics:
            # No links to neighbours: a page stays as it is when another check comes beside it.
            pages |= {f"{rule.name}.md": _page(rule, topic) for rule in topic.rules}
    return pages


def _page(rule: RuleEntry, topic: Topic) -> str:
    chapter = " · ".join(
        f"[{title}]({PAGES[language]}#{topic.id})" for language, title in zip(Language, topic.title, strict=True)
    )
    facts = [
        (lookup("rule.topic"), chapter),
        (lookup("rule.severity"), " · ".join(lookup(f"lint.severity.{rule.severity.value}"))),
        (lookup("rule.category"), rule.category.value),
        (lookup("consequence.label"), " / ".join(" · ".join(one.text) for one in rule.consequences)),
        (lookup("rule.dialects"), ", ".join(dialect.value for dialect in rule.dialects)),
        (lookup("rule.versions"), rule.versions or " / ".join(lookup("rule.all-versions"))),
        (lookup("rule.profiles"), ", ".join(rule.profiles)),
        (lookup("rule.opposite"), f"[{rule.opposite}]({rule.opposite}.md)" if rule.opposite else ""),
        (lookup("rule.family"), f"{rule.family.name} ({rule.family.id})" if rule.family else ""),
    ]
    lines = [MARK, f"# {rule.name} ({rule.id})", "", f"{rule.title.en} · {rule.title.zh}", "", "| | |", "| --- | --- |"]
    lines += [f"| {' · '.join(name)} | {words.replace('|', chr(92) + '|')} |" for name, words in facts if words]
    lines += ["", *_section("rule.why", _both(rule.why))]
    for text_id, example in (("rule.bad", rule.bad), ("rule.good", rule.good)):
        if example:
            lines += _section(text_id, _fenced(example.replace("\r", "␍"), rule.language))  # or no page would show it
    lines += _section("rule.fix", [*_both(_escaped(rule.help)), *_both(lookup(f"rule.fix.{rule.fix}"))])
    if rule.evidence:
        lines += _section("rule.evidence", [*map(_evidence, rule.evidence), ""])
    lines += _section("rule.ignore", _fenced(f"# ms-tune: ignore[{rule.name}] why it is right here\n", rule.language))
    return "\n".join(lines).rstrip() + "\n"


def _evidence(item: Evidence) -> str:
    symbol = f", `{item.symbol}`" if item.symbol else ""
    return f"- {item.framework} {item.version}: `{item.file}`{symbol}"


def _section(text_id: str, lines: Iterable[str]) -> list[str]:
    return [f"## {' · '.join(lookup(text_id))}", "", *lines]


def _both(text: Text) -> list[str]:
    """A text in both languages, as two paragraphs."""
    return [text.en, "", text.zh, ""]


def _fenced(example: str, language: str = "yaml") -> list[str]:
    return [f"```{language}", example.rstrip(), "```", ""]


def _escaped(text: Text) -> Text:
    """With parameters such as ``<number>`` readable: Markdown would take them for tags."""
    return Text(*(words.replace("<", "\\<") for words in text))
