"""Define ``ms-tune rule``, which explains checks."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from ms_tune.cli.parser import Parser
from ms_tune.errors import ExitCode, UsageError, closest_check
from ms_tune.lint.rules import RuleEntry, all_rules, course, wrong_examples
from ms_tune.lint.settings import settings_for
from ms_tune.report.console import Console, usage_hint
from ms_tune.report.rule import MARK, reference, rules_json, write_chapters, write_rule
from ms_tune.source.atomic_write import write_atomically
from ms_tune.text import Language, msg

_PROGRAM = "ms-tune rule"


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = Parser(_PROGRAM, language, "rule.description", "rule.examples")
    parser.option(
        "names", "rule.help.name", nargs="*", metavar="CHECK", among=lambda: [rule.name for rule in all_rules()]
    )
    parser.flag("--all", "rule.help.all")
    parser.option("--search", "rule.help.search", metavar="WORD")
    parser.option("--markdown", "rule.help.markdown", metavar="FOLDER", type=Path)
    parser.file("--checklist", "rule.help.checklist", action="append", default=[])
    parser.flag("--try", "rule.help.try", dest="tries")
    parser.add_common_arguments(verdict=False)
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Find the requested checks and show them."""
    if arguments.markdown is not None:
        _write_reference(all_rules(arguments.checklist), arguments.markdown, console)
        return ExitCode.OK
    checklists = (*settings_for(Path.cwd()).checklists, *arguments.checklist)
    if arguments.tries:
        return _try_examples(checklists, console)
    if not arguments.names and not arguments.all and not arguments.search:
        raise UsageError(msg("rule.none"), usage_hint(_PROGRAM))
    rules = all_rules(checklists)
    chosen = rules if arguments.all else [rule for name in arguments.names for rule in _find_rules(name, rules)]
    if arguments.search:
        chosen = _search_rules(arguments.search, rules)
        if not chosen:
            raise UsageError(msg("rule.search.none", word=arguments.search), msg("rule.unknown.hint"))
    if arguments.json:
        console.write_json(rules_json(chosen))
        return ExitCode.OK
    if arguments.all or arguments.search:
        write_chapters(course(chosen), console)
    else:
        for position, rule in enumerate(chosen):
            if position:
                console.write("")
            write_rule(rule, console)
    return ExitCode.OK


def _try_examples(checklists: Sequence[Path], console: Console) -> ExitCode:
    if not checklists:
        raise UsageError(msg("rule.try.nothing"), usage_hint(_PROGRAM))
    wrong = list(wrong_examples(checklists))
    console.write_lines(wrong)
    if not wrong:
        console.write(console.text("rule.try.fine"))
    return ExitCode.FINDINGS if wrong else ExitCode.OK


def _find_rules(name: str, rules: Sequence[RuleEntry]) -> list[RuleEntry]:
    """Return the check with this ID or name, or the checks of its family; raise UsageError if none is found."""
    called = {rule: [one for one in (rule, rule.family) if one is not None] for rule in rules}
    found = [rule for rule, ones in called.items() if any(name.lower() in (one.id.lower(), one.name) for one in ones)]
    if found:
        return found
    similar = closest_check(name, [known for ones in called.values() for one in ones for known in (one.name, one.id)])
    count = len(_search_rules(name, rules))
    hint = msg("rule.unknown.search", count=count, word=quote(name)) if count else msg("rule.unknown.hint")
    if similar:
        hint = msg("cli.usage.similar", similar=similar, hint=hint)
    raise UsageError(msg("rule.unknown", name=name), hint)


def _search_rules(words: str, rules: Sequence[RuleEntry]) -> list[RuleEntry]:
    """Return the checks whose id, name, texts or bad example contain all the words."""
    texts = ((rule, "\n".join((rule.id, rule.name, *rule.title, *rule.why, *rule.help, rule.bad))) for rule in rules)
    return [rule for rule, text in texts if all(word in text.lower() for word in words.lower().split())]


def _write_reference(rules: Sequence[RuleEntry], folder: Path, console: Console) -> None:
    pages = reference(course(rules))
    for name, page in pages.items():
        write_atomically(folder / name, page.encode(), parents=True)
    for old in folder.glob("*.md"):
        if old.name not in pages and old.read_bytes().startswith(MARK.encode()):
            old.unlink()
    console.note(console.text("rule.written", count=len(pages), folder=folder))
