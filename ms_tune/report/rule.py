"""Show explanations of checks: in the terminal, as JSON, or as pages of the rule reference with a table of contents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from ms_tune.diagnostics import Category
from ms_tune.encode import record_json
from ms_tune.lint.rules import CoursePart, RuleEntry, Topic
from ms_tune.report.console import SEVERITY_COLOURS, Console, folds, terminal_width, wrap
from ms_tune.text import Language, Text, lookup

_TITLE_COLUMN = 12  # after the name: an id such as `MST33514` and two gaps
_TITLE_WIDTH = 24  # at least, but next to the longest names


def write_rule(rule: RuleEntry, console: Console) -> None:
    """Write the full explanation of a check."""
    head = console.paint(f"{rule.id} {rule.name}", SEVERITY_COLOURS[rule.severity])
    console.write_prose(console.labelled(head, console.say(rule.title)) + "\n")
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
    _write_section("rule.why", console.say(rule.why), console)
    for text_id, example in (("rule.bad", rule.bad), ("rule.good", rule.good)):
        if example:
            _write_section(
                text_id, "\n".join(f"  {line}" for line in example.rstrip().replace("\r", "␍").splitlines()), console
            )
    _write_section("rule.fix", f"{console.say(rule.help)}\n{console.text(f'rule.fix.{rule.fix}')}", console)
    if rule.evidence:
        lines = (
            f"  {item.framework} {item.version}: {item.file}{f', {item.symbol}' if item.symbol else ''}"
            for item in rule.evidence
        )
        _write_section("rule.evidence", "\n".join(lines), console)


def write_chapters(parts: Sequence[CoursePart], console: Console) -> None:
    """Write one line per check, in the chapters of the reference."""
    for number, topic in enumerate(topic for part in parts for topic in part.topics):
        head = console.text("rule.chapter", title=console.say(topic.title), count=len(topic.rules))
        console.write("\n" * bool(number) + console.paint(head, "cyan"))
        most = terminal_width() - _TITLE_COLUMN
        width = min(max(len(rule.name) for rule in topic.rules), most - _TITLE_WIDTH)
        for rule in topic.rules:
            room = max(most - max(width, len(rule.name)), _TITLE_WIDTH // 2)
            title = console.say(rule.title)
            first, *rest = wrap(title, room, prose=True) if folds() else [title]
            name = console.paint(f"{rule.name:<{width}}", SEVERITY_COLOURS[rule.severity])
            console.write_raw(f"{rule.id:<8}  {name}  {first}")
            for line in rest:
                console.write_raw(" " * (width + _TITLE_COLUMN) + line)


def _write_section(text_id: str, words: str, console: Console) -> None:
    console.write(f"\n{console.paint(console.labelled(console.text(text_id), ''), 'cyan')}")
    if text_id in ("rule.bad", "rule.good"):
        console.write_raw(words)
    else:
        console.write_prose(words)


VERSION = 1


def rules_json(rules: Iterable[RuleEntry]) -> dict[str, object]:
    """Return the checks as a JSON object."""
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
    """Return all pages of the rule reference by file name."""
    pages = {name: f"{MARK}\n{_contents_page(parts, language)}" for language, name in PAGES.items()}
    for topic in chain.from_iterable(part.topics for part in parts):
        for language in Language:
            pages[_chapter_file(topic, language)] = f"{MARK}\n{_chapter_page(topic, language)}"
        # No links to neighbours: new checks must not change existing pages.
        pages |= {f"{rule.name}.md": _rule_page(rule, topic) for rule in topic.rules}
    return pages


def _chapter_file(topic: Topic, language: Language) -> str:
    return f"chapter-{topic.id}{PAGES[language].removeprefix('README')}"


def _rule_page(rule: RuleEntry, topic: Topic) -> str:
    chapter = " · ".join(f"[{topic.title.say(language)}]({_chapter_file(topic, language)})" for language in Language)
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
    rows = [f"| {' · '.join(name)} | {words.replace('|', chr(92) + '|')} |" for name, words in facts if words]
    lines = [MARK, f"# {rule.name} ({rule.id})", "", f"{rule.title.en} · {rule.title.zh}", ""]
    lines += [rows[0], "| --- | --- |", *rows[1:], "", *_markdown_section("rule.why", _both_paragraphs(rule.why))]
    for text_id, example in (("rule.bad", rule.bad), ("rule.good", rule.good)):
        if example:
            lines += _markdown_section(
                text_id, _fence_example(example.replace("\r", "␍"), rule.language)
            )  # otherwise it is invisible on the page
    lines += _markdown_section(
        "rule.fix", [*_both_paragraphs(_escape_tags(rule.help)), *_both_paragraphs(lookup(f"rule.fix.{rule.fix}"))]
    )
    if rule.evidence:
        claims = [
            f"- {item.framework} {item.version}: `{item.file}`{f', `{item.symbol}`' if item.symbol else ''}"
            for item in rule.evidence
        ]
        lines += _markdown_section("rule.evidence", [*claims, ""])
    lines += _markdown_section(
        "rule.ignore", _fence_example(f"# ms-tune: ignore[{rule.name}] why it is right here\n", rule.language)
    )
    return "\n".join(lines).rstrip() + "\n"


def _markdown_section(text_id: str, lines: Iterable[str]) -> list[str]:
    return [f"## {' · '.join(lookup(text_id))}", "", *lines]


def _both_paragraphs(text: Text) -> list[str]:
    return [text.en, "", text.zh, ""]


def _fence_example(example: str, language: str = "yaml") -> list[str]:
    return [f"```{language}", example.rstrip(), "```", ""]


def _escape_tags(text: Text) -> Text:
    # Escape parameters such as `<number>`, which Markdown would treat as HTML tags.
    return Text(*(words.replace("<", "\\<") for words in text))


PAGES = {Language.EN: "README.md", Language.ZH: "README.zh.md"}


def _contents_page(parts: Sequence[CoursePart], language: Language) -> str:
    other = next(one for one in Language if one is not language)
    lines = [
        f"# {_text_in('rule.index.title', language)}",
        "",
        f"[{_text_in('rule.index.language', other)}]({PAGES[other]})",
        "",
        _text_in("rule.index.text", language),
        "",
        *_list_chapters(parts, language),
        *_list_categories(parts, language),
    ]
    return "\n".join(lines)


def _list_chapters(parts: Iterable[CoursePart], language: Language) -> Iterator[str]:
    yield from (f"## {_text_in('rule.index.path', language)}", "")
    for number, part in enumerate(parts, 1):
        yield f"{number}. **{part.title.say(language)}** · {part.text.say(language)}"
        for topic in part.topics:
            yield f"    - [{topic.title.say(language)}]({_chapter_file(topic, language)}) ({len(topic.rules)})"
    yield ""


def _chapter_page(topic: Topic, language: Language) -> str:
    other = next(one for one in Language if one is not language)
    lines = [
        f"# {topic.title.say(language)}",
        "",
        f"[{_text_in('rule.index.language', other)}]({_chapter_file(topic, other)})",
        "",
        f"[{_text_in('rule.index.title', language)}]({PAGES[language]})",
        "",
        topic.text.say(language),
        "",
    ]
    heads = [_text_in(f"rule.index.{name}", language) for name in ("check", "severity", "fix", "about")]
    for group in topic.groups:
        lines += [group.text.say(language), "", f"| {' | '.join(heads)} |", "| --- | --- | --- | --- |"]
        lines += [*(_rule_row(rule, language) for rule in group.rules), ""]
    return "\n".join(lines)


def _rule_row(rule: RuleEntry, language: Language) -> str:
    cells = (
        f"[{rule.name}]({rule.name}.md) {rule.id}",
        _text_in(f"lint.severity.{rule.severity.value}", language),
        _text_in(f"rule.index.fix.{rule.fix}", language),
        rule.title.say(language).replace("|", "\\|"),
    )
    return f"| {' | '.join(cells)} |"


def _list_categories(parts: Iterable[CoursePart], language: Language) -> Iterator[str]:
    yield from (f"## {_text_in('rule.index.categories', language)}", "")
    rules = [rule for part in parts for topic in part.topics for rule in topic.rules]
    for category in Category:
        some = [f"[{rule.name}]({rule.name}.md)" for rule in rules if rule.category is category]
        if some:
            yield from (f"### {_text_in(f'rule.category.{category.value}', language)}", "", ", ".join(some), "")


def _text_in(text_id: str, language: Language) -> str:
    return lookup(text_id).say(language)
