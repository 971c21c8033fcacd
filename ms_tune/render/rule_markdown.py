"""The rule reference: one page a check and an index, in English and Chinese side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.lint.finding import Category
from ms_tune.texts import Text, lookup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ms_tune.lint.rules import Rule
    from ms_tune.lint.topics import Topic

MARK = "<!-- Written by `ms-tune rule --markdown`; change the checklists, not this page. -->"
INDEX = "README.md"


def reference(topics: Sequence[Topic]) -> dict[str, str]:
    """Every page by its file name."""
    pages = {INDEX: _index(topics)}
    for topic in topics:
        pages |= {f"{rule.name}.md": _page(rule, topic) for rule in topic.rules}
    return pages


def _index(topics: Sequence[Topic]) -> str:
    lines = [
        MARK,
        *_both("# {}", lookup("rule.index.title"), joined=True),
        *_both("{}", lookup("rule.index.text")),
        *(f"- [{topic.title.en} · {topic.title.zh}](#{topic.id}) ({len(topic.rules)})" for topic in topics),
        "",
    ]
    for topic in topics:
        lines += [f'<a id="{topic.id}"></a>', "", *_both("## {}", topic.title, joined=True), *_both("{}", topic.text)]
        lines += ["| id | name | severity | fix | English | 中文 |", "| --- | --- | --- | --- | --- | --- |"]
        lines += [
            f"| {rule.id} | [{rule.name}]({rule.name}.md) | {rule.severity.value} | {rule.fix} "
            f"| {_cell(rule.title.en)} | {_cell(rule.title.zh)} |"
            for rule in topic.rules
        ]
        lines.append("")
    lines += [*_both("## {}", lookup("rule.index.categories"), joined=True)]
    rules = [rule for topic in topics for rule in topic.rules]
    for category in Category:
        some = [f"[{rule.name}]({rule.name}.md)" for rule in rules if rule.category is category]
        if some:
            lines += [*_both("### {}", lookup(f"rule.category.{category.value}"), joined=True), ", ".join(some), ""]
    return "\n".join(lines)


def _page(rule: Rule, topic: Topic) -> str:
    facts = [
        (lookup("rule.topic"), f"[{topic.title.en} · {topic.title.zh}]({INDEX}#{topic.id})"),
        (lookup("rule.severity"), rule.severity.value),
        (lookup("rule.category"), rule.category.value),
        (lookup("rule.dialects"), ", ".join(dialect.value for dialect in rule.dialects)),
        (lookup("rule.versions"), rule.versions or " / ".join(lookup("rule.all-versions"))),
        (lookup("rule.profiles"), ", ".join(rule.profiles)),
        (lookup("rule.opposite"), f"[{rule.opposite}]({rule.opposite}.md)" if rule.opposite else ""),
    ]
    lines = [MARK, f"# {rule.name} ({rule.id})", "", f"{rule.title.en} · {rule.title.zh}", "", "| | |", "| --- | --- |"]
    lines += [f"| {' · '.join(name)} | {_cell(words)} |" for name, words in facts if words]
    lines += ["", *_section("rule.why", _both("{}", rule.why))]
    for text_id, example in (("rule.bad", rule.bad), ("rule.good", rule.good)):
        if example:
            lines += _section(text_id, _fenced(example, rule.language))
    lines += _section("rule.fix", [*_both("{}", _escaped(rule.help)), *_both("{}", lookup(f"rule.fix.{rule.fix}"))])
    if rule.evidence:
        items = [f"- {item.framework} {item.version}: `{item.file}`" for item in rule.evidence]
        lines += _section("rule.evidence", [*items, ""])
    lines += _section("rule.ignore", _fenced(f"# ms-tune: ignore[{rule.name}] why it is right here\n"))
    return "\n".join(lines).rstrip() + "\n"


def _section(text_id: str, lines: Iterable[str]) -> list[str]:
    return [*_both("## {}", lookup(text_id), joined=True), *lines]


def _both(form: str, text: Text, *, joined: bool = False) -> list[str]:
    """A text in both languages: one behind the other, or two paragraphs."""
    if joined:
        return [form.format(f"{text.en} · {text.zh}"), ""]
    return [form.format(text.en), "", form.format(text.zh), ""]


def _fenced(example: str, language: str = "yaml") -> list[str]:
    return [f"```{language}", example.rstrip(), "```", ""]


def _escaped(text: Text) -> Text:
    """With parameters such as ``<number>`` readable: Markdown would take them for tags."""
    return Text(*(words.replace("<", "\\<") for words in text))


def _cell(words: str) -> str:
    return words.replace("|", "\\|")
