"""A check explained on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.text import Language

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.lint.rules import RuleEntry
    from ms_tune.report.console import Console
    from ms_tune.text import Text

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}


def write_rule(rule: RuleEntry, console: Console) -> None:
    """Write all there is to say about a check."""
    head = console.paint(f"{rule.id} {rule.name}", _COLOURS[rule.severity.value])
    console.write_prose(console.labelled(head, _say(rule.title, console)) + "\n")
    facts = {
        "rule.severity": console.text(f"lint.severity.{rule.severity.value}"),
        "rule.category": rule.category.value,
        "consequence.label": " / ".join(_say(one.text, console) for one in rule.consequences),
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
