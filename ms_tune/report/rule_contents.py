"""The table of contents of the rule reference, once for each language: a course from the first config to the long run."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Category
from ms_tune.text import Language, lookup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ms_tune.diagnostics import Severity
    from ms_tune.lint.rules import CoursePart, RuleEntry, Topic
    from ms_tune.text import Text

PAGES = {Language.EN: "README.md", Language.ZH: "README.zh.md"}


def contents(parts: Sequence[CoursePart], language: Language) -> str:
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
        yield f"{number}. **{_say(part.title, language)}** · {_say(part.text, language)}"
        yield from (f"   - [{_say(topic.title, language)}](#{topic.id}) ({len(topic.rules)})" for topic in part.topics)
    yield ""


def _chapter(topic: Topic, language: Language) -> Iterator[str]:
    yield from (f'<a id="{topic.id}"></a>', "", f"## {_say(topic.title, language)}", "", _say(topic.text, language), "")
    for group in topic.groups:
        yield from (_say(group.text, language), "")
        heads = (_text(f"rule.index.{name}", language) for name in ("check", "severity", "fix", "about"))
        yield f"| {' | '.join(heads)} |"
        yield "| --- | --- | --- | --- |"
        yield from (_row(rule, language) for rule in group.rules)
        yield ""


def _row(rule: RuleEntry, language: Language) -> str:
    cells = (
        f"[{rule.name}]({rule.name}.md) {rule.id}",
        severity(rule.severity, language),
        _text(f"rule.index.fix.{rule.fix}", language),
        _say(rule.title, language).replace("|", "\\|"),
    )
    return f"| {' | '.join(cells)} |"


def _categories(parts: Iterable[CoursePart], language: Language) -> Iterator[str]:
    yield from (f"## {_text('rule.index.categories', language)}", "")
    rules = [rule for part in parts for topic in part.topics for rule in topic.rules]
    for category in Category:
        some = [f"[{rule.name}]({rule.name}.md)" for rule in rules if rule.category is category]
        if some:
            yield from (f"### {_text(f'rule.category.{category.value}', language)}", "", ", ".join(some), "")


def severity(value: Severity, language: Language) -> str:
    """A severity in words."""
    return _text(f"lint.severity.{value.value}", language)


def _text(text_id: str, language: Language) -> str:
    return _say(lookup(text_id), language)


def _say(text: Text, language: Language) -> str:
    return text.en if language is Language.EN else text.zh
