"""A check explained: in the terminal, as JSON, and as the pages of the rule reference with their table of contents."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Category
from ms_tune.encode import record_json
from ms_tune.text import Language, Text, lookup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ms_tune.diagnostics import Severity
    from ms_tune.lint.rules import CoursePart, Evidence, RuleEntry, Topic
    from ms_tune.report.console import Console

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}


def write_rule(rule: RuleEntry, console: Console) -> None:
    """Write all there is to say about a check."""
    head = console.paint(f"{rule.id} {rule.name}", _COLOURS[rule.severity.value])
    console.write_prose(console.labelled(head, _say(rule.title, console)) + "\n")
    facts = {
        "rule.severity": console.text(f"lint.severity.{rule.severity.value}"),
        "rule.category": rule.category.value,
        "consequence.label": " / ".join(console.text(f"consequence.{one}") for one in rule.consequences),
        "rule.dialects": ", ".join(dialect.value for dialect in rule.dialects),
        "rule.versions": rule.versions or console.text("rule.all-versions"),
        "rule.profiles": ", ".join(rule.profiles),
        "rule.opposite": rule.opposite,
        "rule.family": rule.family and f"{rule.family.id} {rule.family.name}",
    }
    for text_id, words in facts.items():
        if words:
            console.write(console.labelled(console.text(text_id), words))
    _section("rule.why", _say(rule.why, console), console)
    for text_id, example in (("rule.bad", rule.bad), ("rule.good", rule.good)):
        if example:
            _section(
                text_id, "\n".join(f"  {line}" for line in example.rstrip().replace("\r", "␍").splitlines()), console
            )
    _section("rule.fix", f"{_say(rule.help, console)}\n{console.text(f'rule.fix.{rule.fix}')}", console)
    if rule.evidence:
        lines = (
            f"  {item.framework} {item.version}: {item.file}{f', {item.symbol}' if item.symbol else ''}"
            for item in rule.evidence
        )
        _section("rule.evidence", "\n".join(lines), console)


def write_rules(rules: Iterable[RuleEntry], console: Console) -> None:
    """Write one line for each check."""
    rules = list(rules)
    width = max(len(rule.name) for rule in rules)
    for rule in rules:
        name = console.paint(f"{rule.name:<{width}}", _COLOURS[rule.severity.value])
        console.write(f"{rule.id}  {name}  {_say(rule.title, console)}")


def _section(text_id: str, words: str, console: Console) -> None:
    console.write(f"\n{console.paint(console.labelled(console.text(text_id), ''), 'cyan')}")
    if text_id in ("rule.bad", "rule.good"):
        console.write_whole(words)
    else:
        console.write_prose(words)


def _say(text: Text, console: Console) -> str:
    return text.en if console.language is Language.EN else text.zh


VERSION = 1


def rules_json(rules: Iterable[RuleEntry]) -> dict[str, object]:
    """The checks as plain values."""
    return {"version": VERSION, "rules": [_rule_json(rule) for rule in rules]}


def _rule_json(rule: RuleEntry) -> dict[str, object]:
    return {
        **record_json(rule, "id", "name", "severity", "category", "dialects", "versions", "profiles"),
        **record_json(rule, "opposite", "family", "fix", "bad", "good"),
        "consequences": [{"id": one, **lookup(f"consequence.{one}")._asdict()} for one in rule.consequences],
        **{name: getattr(rule, name)._asdict() for name in ("title", "why", "help")},  # in both languages
        "evidence": [
            record_json(item, "framework", "version", "file") | {"symbol": item.symbol or None}
            for item in rule.evidence
        ],
    }


MARK = "<!-- Written by `ms-tune rule --markdown`; change the checklists, not this page. -->"


def reference(parts: Sequence[CoursePart]) -> dict[str, str]:
    """Every page by its file name."""
    pages = {name: f"{MARK}\n{_contents(parts, language)}" for language, name in PAGES.items()}
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
        (
            lookup("consequence.label"),
            " / ".join(" · ".join(lookup(f"consequence.{one}")) for one in rule.consequences),
        ),
        (lookup("rule.dialects"), ", ".join(dialect.value for dialect in rule.dialects)),
        (lookup("rule.versions"), rule.versions or " / ".join(lookup("rule.all-versions"))),
        (lookup("rule.profiles"), ", ".join(rule.profiles)),
        (lookup("rule.opposite"), f"[{rule.opposite}]({rule.opposite}.md)" if rule.opposite else ""),
        (lookup("rule.family"), f"{rule.family.name} ({rule.family.id})" if rule.family else ""),
    ]
    lines = [MARK, f"# {rule.name} ({rule.id})", "", f"{rule.title.en} · {rule.title.zh}", "", "| | |", "| --- | --- |"]
    lines += [f"| {' · '.join(name)} | {words.replace('|', chr(92) + '|')} |" for name, words in facts if words]
    lines += ["", *_markdown_section("rule.why", _both(rule.why))]
    for text_id, example in (("rule.bad", rule.bad), ("rule.good", rule.good)):
        if example:
            lines += _markdown_section(
                text_id, _fenced(example.replace("\r", "␍"), rule.language)
            )  # or no page would show it
    lines += _markdown_section("rule.fix", [*_both(_escaped(rule.help)), *_both(lookup(f"rule.fix.{rule.fix}"))])
    if rule.evidence:
        lines += _markdown_section("rule.evidence", [*map(_evidence, rule.evidence), ""])
    lines += _markdown_section(
        "rule.ignore", _fenced(f"# ms-tune: ignore[{rule.name}] why it is right here\n", rule.language)
    )
    return "\n".join(lines).rstrip() + "\n"


def _evidence(item: Evidence) -> str:
    symbol = f", `{item.symbol}`" if item.symbol else ""
    return f"- {item.framework} {item.version}: `{item.file}`{symbol}"


def _markdown_section(text_id: str, lines: Iterable[str]) -> list[str]:
    return [f"## {' · '.join(lookup(text_id))}", "", *lines]


def _both(text: Text) -> list[str]:
    """A text in both languages, as two paragraphs."""
    return [text.en, "", text.zh, ""]


def _fenced(example: str, language: str = "yaml") -> list[str]:
    return [f"```{language}", example.rstrip(), "```", ""]


def _escaped(text: Text) -> Text:
    """With parameters such as ``<number>`` readable: Markdown would take them for tags."""
    return Text(*(words.replace("<", "\\<") for words in text))


PAGES = {Language.EN: "README.md", Language.ZH: "README.zh.md"}


def _contents(parts: Sequence[CoursePart], language: Language) -> str:
    """The page in one language, without the mark of generated pages."""
    other = next(one for one in Language if one is not language)
    lines = [
        f"# {_text('rule.index.title', language)}",
        "",
        f"[{_text('rule.index.language', other)}]({PAGES[other]})",
        "",
        _text("rule.index.text", language),
        "",
        *_path(parts, language),
    ]
    for topic in chain.from_iterable(part.topics for part in parts):
        lines += _chapter(topic, language)
    return "\n".join([*lines, *_categories(parts, language)])


def _path(parts: Iterable[CoursePart], language: Language) -> Iterator[str]:
    """The way through the chapters, with what each part of it teaches."""
    yield from (f"## {_text('rule.index.path', language)}", "")
    for number, part in enumerate(parts, 1):
        yield f"{number}. **{_in_language(part.title, language)}** · {_in_language(part.text, language)}"
        yield from (
            f"   - [{_in_language(topic.title, language)}](#{topic.id}) ({len(topic.rules)})" for topic in part.topics
        )
    yield ""


def _chapter(topic: Topic, language: Language) -> Iterator[str]:
    yield from (
        f'<a id="{topic.id}"></a>',
        "",
        f"## {_in_language(topic.title, language)}",
        "",
        _in_language(topic.text, language),
        "",
    )
    for group in topic.groups:
        yield from (_in_language(group.text, language), "")
        heads = (_text(f"rule.index.{name}", language) for name in ("check", "severity", "fix", "about"))
        yield f"| {' | '.join(heads)} |"
        yield "| --- | --- | --- | --- |"
        yield from (_row(rule, language) for rule in group.rules)
        yield ""


def _row(rule: RuleEntry, language: Language) -> str:
    cells = (
        f"[{rule.name}]({rule.name}.md) {rule.id}",
        _severity_words(rule.severity, language),
        _text(f"rule.index.fix.{rule.fix}", language),
        _in_language(rule.title, language).replace("|", "\\|"),
    )
    return f"| {' | '.join(cells)} |"


def _categories(parts: Iterable[CoursePart], language: Language) -> Iterator[str]:
    yield from (f"## {_text('rule.index.categories', language)}", "")
    rules = [rule for part in parts for topic in part.topics for rule in topic.rules]
    for category in Category:
        some = [f"[{rule.name}]({rule.name}.md)" for rule in rules if rule.category is category]
        if some:
            yield from (f"### {_text(f'rule.category.{category.value}', language)}", "", ", ".join(some), "")


def _severity_words(value: Severity, language: Language) -> str:
    """A severity in words."""
    return _text(f"lint.severity.{value.value}", language)


def _text(text_id: str, language: Language) -> str:
    return _in_language(lookup(text_id), language)


def _in_language(text: Text, language: Language) -> str:
    return text.en if language is Language.EN else text.zh
