"""Test every text in both languages, and every id in the code."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from ms_tune import text as texts
from ms_tune.dryrun.cann_sim.environment import Backend
from ms_tune.enums import MemoryCategory
from ms_tune.text import Language, Message, Text, lookup, msg, render, texts_of
from ms_tune.verdict.outcome import Fit
from tests.sources import modules, nodes

FOLDER = Path(texts.__file__).parent / "texts"
ROOMS = tuple(sorted(file.stem for file in FOLDER.glob("*.json")))
TEXTS: dict[str, Text] = {text_id: lookup(text_id) for room in ROOMS for text_id in texts_of(room)}
CJK = re.compile("[\u4e00-\u9fff]")
# Texts that need no translation: names, numbers and parameters.
NEUTRAL = {
    "check.change.set",
    "layouts.column.mfu",
    "fit.alternative",
    "fit.why.and",
    "planning.file.at",
    "check.base.and",
    "cli.comma",
    "cli.labelled",
    "cli.usage.other",
    "cli.usage.value",
    "dryrun.check.label.cann",
    "dryrun.check.label.mindformers",
    "dryrun.check.label.mindspore",
    "dryrun.check.label.numpy",
    "dryrun.check.label.python",
    "dryrun.show.changed",
    "normalize.column.chunk",
    "normalize.effect.none",
    "normalize.framework.mindformers",
    "normalize.framework.mindformers-pynative",
    "normalize.framework.mindspeed-ms",
    "normalize.framework.megatron",
    "normalize.kind.dense",
    "normalize.kind.prediction",
    "normalize.map.chunk",
    "normalize.column.swap",
}
# “键: 值” is how YAML is written.
_ASCII_MARK = re.compile(
    r"(?!键: )[\u4e00-\u9fff）”][:;,!?](?=[\s\u4e00-\u9fff{]|$)|[\u4e00-\u9fff]\(|[:;,!?](?=[\u4e00-\u9fff])(?<!键:)"
)
_ID = re.compile(rf"(?:{'|'.join(ROOMS)})\.[a-z0-9]+(?:[.-][a-z0-9_]+)*")
_RENDERERS = {"msg", "text", "tr", "Message", "lookup"}


def placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def format_specs(template: str) -> set[tuple[str, str | None, str | None]]:
    return {(name, spec, conversion) for _, name, spec, conversion in string.Formatter().parse(template) if name}


def _names(text: Text) -> set[str]:
    return placeholders(text.en)


def _shown_with_its_parameters(text_id: str, text: Text) -> bool:
    message = Message(text_id, {name: f"<{name}>" for name in _names(text)})
    shown = [render(message, language) for language in Language]
    return all(f"<{name}>" in sentence for sentence in shown for name in message.params)


# Required properties of a text, with their tests.
PROPERTIES: dict[str, Callable[[str, Text], bool]] = {
    "says something in both languages": lambda _, text: all(said.strip() and said == said.strip("\n") for said in text),
    "has the same parameters in both languages": lambda _, text: (
        format_specs(text.en) == format_specs(text.zh)
        and placeholders(text.en) == placeholders(text.zh)
        and all(re.fullmatch(r"[a-z_]+", name) for name in _names(text))
    ),
    "has Chinese that is Chinese": lambda text_id, text: bool(CJK.search(text.zh)) is (text_id not in NEUTRAL),
    "has no mark of English behind Chinese words": lambda _, text: _ASCII_MARK.search(text.zh) is None,
    "has English that is English": lambda _, text: CJK.search(text.en) is None,
    "has an id that names its room": lambda text_id, text: bool(_ID.fullmatch(text_id)) and lookup(text_id) == text,
    "is rendered with its parameters": _shown_with_its_parameters,
}


def _wrong(given: Mapping[str, Text]) -> list[str]:
    """Return every property that a text lacks; a property that cannot be examined counts as lacking."""
    wrong = []
    for text_id, text in given.items():
        for name, holds in PROPERTIES.items():
            try:
                if not holds(text_id, text):
                    wrong.append(f"{text_id}: not one that {name}")
            except (LookupError, ValueError, ImportError) as error:
                wrong.append(f"{text_id}: not one that {name}: {error!r}")
    return wrong


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (msg("memory_html.matches", count="1", size="4 MiB"), "1 block matches, 4 MiB"),
        (msg("memory_html.matches", count="21", size="4 MiB"), "21 blocks match, 4 MiB"),
        (msg("memory.show.rows", rows=1, steps=2), "1 block, 2 steps"),
        (msg("planning.table.stage-bytes", key="a", found=1, stages=2), "a has 1 entry, expected 2 (one per stage)"),
        (msg("snapshot.show.replayed", allocations=1, differences=0), "replayed: 1 allocation, 0 differences"),
    ],
)
def test_one_of_what_is_counted_is_reported_in_the_singular(message: Message, expected: str) -> None:
    assert str(message) == expected


def test_every_text_is_sound() -> None:
    """All texts and properties are in one test, which shows every failure at once."""
    assert len(TEXTS) > 1000
    assert _wrong(TEXTS) == []


def test_neutral_texts_are_texts() -> None:
    assert set(TEXTS) >= NEUTRAL


def test_a_text_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        lookup("cli.no-such-text")


def test_a_message_may_be_in_another() -> None:
    inner = msg("cli.interrupted")
    assert render(msg("cli.usage.other", detail=inner), Language.ZH) == "已中断"
    assert render(msg("cli.usage.other", detail=inner), Language.EN) == "interrupted"


def test_parameters_are_not_templates() -> None:
    assert render(msg("cli.usage.other", detail="{evil} %s {0}"), Language.EN) == "{evil} %s {0}"


# Texts in the code. An id is a string constant, or an f-string with a constant part.


@cache
def _code() -> tuple[tuple[str, ast.Call | ast.Constant | ast.JoinedStr], ...]:
    return tuple(
        (module.name, node)
        for module in modules()
        for node in nodes(module)
        if isinstance(node, (ast.Call, ast.Constant, ast.JoinedStr))
    )


def _is_renderer(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in _RENDERERS


def _pattern(node: ast.JoinedStr) -> str:
    """Return the ids that an f-string may produce, as a regular expression."""
    parts = (part.value if isinstance(part, ast.Constant) else None for part in node.values)
    return "".join(re.escape(part) if isinstance(part, str) else r"[\w-]+" for part in parts)


def _choices(node: ast.AST) -> Iterator[ast.AST]:
    """Return the possible values of an argument: both branches of a conditional expression."""
    if isinstance(node, ast.IfExp):
        yield from _choices(node.body)
        yield from _choices(node.orelse)
    else:
        yield node


@cache
def _message_calls() -> tuple[tuple[str, ast.Call, ast.AST], ...]:
    return tuple(
        (f"{name}:{node.lineno}", node, choice)
        for name, node in _code()
        if isinstance(node, ast.Call) and _is_renderer(node) and node.args
        for choice in _choices(node.args[0])
    )


def test_every_id_that_is_asked_for_exists() -> None:
    asked = {
        (place, node.value)
        for place, _, node in _message_calls()
        # Other objects have a method `text` too; only ids have a dot.
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value
    }
    assert len(asked) > 100
    assert {(place, text_id) for place, text_id in asked if text_id not in TEXTS} == set()


def test_every_constant_that_looks_like_an_id_exists() -> None:
    rooms = {*ROOMS}
    looks = {
        (name, node.value)
        for name, node in _code()
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"[a-z]+\.[a-z]+-[a-z.-]+|[a-z]+\.[a-z]+\.[a-z-]+", node.value)
        and node.value.partition(".")[0] in rooms
        and not name.startswith("ms_tune.lint.")  # key paths of configs, such as model.model_config.offset, look alike
        and not node.value.startswith(("model.model", "model.arch", "config."))
        and not node.value.endswith(".")  # the begin of an id, in an f-string
    }
    assert {found for found in looks if found[1] not in TEXTS} == set()


def test_every_family_of_ids_has_members() -> None:
    patterns = {(place, _pattern(node)) for place, _, node in _message_calls() if isinstance(node, ast.JoinedStr)}
    assert patterns
    assert {found for found in patterns if not any(re.fullmatch(found[1], text_id) for text_id in TEXTS)} == set()


def test_every_parameter_of_a_text_is_given() -> None:
    """This covers every place where the id and the parameters are literals."""
    missing = []
    checked = 0
    for place, call, node in _message_calls():
        elsewhere = any(keyword.arg is None for keyword in call.keywords) or len(call.args) > 1
        elsewhere = elsewhere or ast.unparse(call.func) == "lookup"
        if not isinstance(node, ast.Constant) or node.value not in TEXTS or elsewhere:
            continue
        checked += 1
        wanted = placeholders(TEXTS[str(node.value)].en)
        given = {keyword.arg for keyword in call.keywords}
        missing += [(place, node.value, name) for name in wanted - given]
    assert checked > 100
    assert missing == []


def test_no_text_is_unused() -> None:
    constants = {node.value for _, node in _code() if isinstance(node, ast.Constant)}
    patterns = {_pattern(node) for _, _, node in _message_calls() if isinstance(node, ast.JoinedStr)}
    other = {_pattern(node) for _, node in _code() if isinstance(node, ast.JoinedStr)}
    of_a_room = re.compile(rf"(?:{'|'.join(ROOMS)})\\\.")
    families = re.compile("|".join(patterns | {pattern for pattern in other if of_a_room.match(pattern)}))
    unused = [text_id for text_id in TEXTS if text_id not in constants and not families.fullmatch(text_id)]
    assert unused == []


@pytest.mark.parametrize(
    ("family", "members"),
    [
        ("memory.content.{}", [content.value for content in MemoryCategory]),
        ("dryrun.show.backend.{}", [backend.value for backend in Backend]),
        ("dryrun.check.{}", [backend.value for backend in Backend]),
        ("verdict.word.{}", [*(fit.value for fit in Fit), "none"]),
        ("dryrun.show.{}", ["peak", "footprint"]),
        ("stages.column.{}", ["stage", "rank", "layers", "weights", "optimizer_state", "activations", "peak"]),
        (
            "stages.column.{}",
            ["footprint", "gradients", "other", "verdict", "variant", "settings", "change", "content"],
        ),
        ("stages.column.{}", ["simulated", "real", "difference", "share", "simulated_footprint", "real_footprint"]),
        ("dryrun.progress.{}", ["start", "build", "compile", "step", "write", "remote"]),
        (
            "dryrun.check.label.{}",
            ["machine", "python", "cores", "mindspore", "mindformers", "numpy", "compiler", "cann"],
        ),
    ],
)
def test_every_member_of_a_family_has_a_text(family: str, members: list[str]) -> None:
    assert [family.format(member) for member in members if family.format(member) not in TEXTS] == []
