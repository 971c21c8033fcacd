"""Every text in both languages, and every id that the code uses."""

from __future__ import annotations

import ast
import re
import string
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from ms_tune.dryrun.cann_sim.environment import Backend
from ms_tune.dryrun.result import Verdict
from ms_tune.memory.contents import Content
from ms_tune.texts import Language, Message, Text, lookup, msg, render
from tests.sources import modules

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOMS = tuple(
    module.name.rpartition(".")[2] for module in modules() if module.inside("texts") and not module.is_package
)
TEXTS: dict[str, Text] = {
    text_id: text for room in ROOMS for text_id, text in import_module(f"ms_tune.texts.{room}").TEXTS.items()
}
CJK = re.compile("[\u4e00-\u9fff]")
# Nothing in them needs another language: names, numbers and parameters.
NEUTRAL = {
    "cli.usage.other",
    "cli.usage.value",
    "dryrun.check.label.cann",
    "dryrun.check.label.mindformers",
    "dryrun.check.label.mindspore",
    "dryrun.check.label.numpy",
    "dryrun.check.label.python",
    "dryrun.show.changed",
    "normalize.column.chunk",
    "normalize.column.stage",
    "normalize.effect.none",
    "normalize.framework.mindformers",
    "normalize.framework.mindformers-pynative",
    "normalize.framework.mindspeed-ms",
    "normalize.map.chunk",
    "normalize.column.swap",
}
_ID = re.compile(rf"(?:{'|'.join(ROOMS)})\.[a-z0-9]+(?:[.-][a-z0-9_]+)*")
_RENDERERS = {"msg", "text", "tr", "Message", "lookup"}


def placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def format_specs(template: str) -> set[tuple[str, str | None, str | None]]:
    return {(name, spec, conversion) for _, name, spec, conversion in string.Formatter().parse(template) if name}


@pytest.mark.parametrize("text_id", TEXTS)
class TestEveryText:
    def test_it_says_something_in_both_languages(self, text_id: str) -> None:
        assert all(text.strip() and text == text.strip("\n") for text in TEXTS[text_id])

    def test_both_languages_have_the_same_parameters(self, text_id: str) -> None:
        text = TEXTS[text_id]
        assert placeholders(text.en) == placeholders(text.zh)
        assert format_specs(text.en) == format_specs(text.zh)
        assert all(re.fullmatch(r"[a-z_]+", name) for name in placeholders(text.en))

    def test_chinese_is_chinese(self, text_id: str) -> None:
        assert bool(CJK.search(TEXTS[text_id].zh)) is (text_id not in NEUTRAL)

    def test_english_is_english(self, text_id: str) -> None:
        assert CJK.search(TEXTS[text_id].en) is None

    def test_its_id_names_its_room(self, text_id: str) -> None:
        assert _ID.fullmatch(text_id)
        assert lookup(text_id) is TEXTS[text_id]

    def test_it_is_rendered_with_its_parameters(self, text_id: str) -> None:
        for language in Language:
            message = Message(text_id, {name: f"<{name}>" for name in placeholders(TEXTS[text_id].en)})
            shown = render(message, language)
            assert all(f"<{name}>" in shown for name in message.params)


def test_neutral_texts_are_texts() -> None:
    assert set(TEXTS) >= NEUTRAL


def test_a_text_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        lookup("cli.no-such-text")


def test_a_message_may_stand_in_another() -> None:
    inner = msg("cli.interrupted")
    assert render(msg("cli.usage.other", detail=inner), Language.ZH) == "已中断"
    assert render(msg("cli.usage.other", detail=inner), Language.EN) == "interrupted"


def test_parameters_are_not_templates() -> None:
    assert render(msg("cli.usage.other", detail="{evil} %s {0}"), Language.EN) == "{evil} %s {0}"


# What the code says. An id is a string constant, or an f-string of which only a part is constant.


def _code() -> Iterator[tuple[str, ast.AST]]:
    for module in modules():
        if module.name != "ms_tune.texts" and module.inside("texts"):
            continue
        for node in ast.walk(module.tree):
            yield module.name, node


def _is_renderer(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in _RENDERERS


def _pattern(node: ast.JoinedStr) -> str:
    """The ids that an f-string may make, as a regular expression."""
    parts = (part.value if isinstance(part, ast.Constant) else None for part in node.values)
    return "".join(re.escape(part) if isinstance(part, str) else r"[\w-]+" for part in parts)


def _choices(node: ast.AST) -> Iterator[ast.AST]:
    """What an argument may be: both branches of a conditional expression."""
    if isinstance(node, ast.IfExp):
        yield from _choices(node.body)
        yield from _choices(node.orelse)
    else:
        yield node


def _asked_for() -> Iterator[tuple[str, ast.Call, ast.AST]]:
    for name, node in _code():
        if _is_renderer(node) and isinstance(node, ast.Call) and node.args:
            for choice in _choices(node.args[0]):
                yield f"{name}:{node.lineno}", node, choice


_CONSTANTS = {
    node.value for _, node in _code() if isinstance(node, ast.Constant) and isinstance(node.value, str)
} & TEXTS.keys()
_FAMILIES = {_pattern(node) for _, _, node in _asked_for() if isinstance(node, ast.JoinedStr)} | {
    _pattern(node)
    for _, node in _code()
    if isinstance(node, ast.JoinedStr) and re.match(rf"(?:{'|'.join(ROOMS)})\\\.", _pattern(node))
}


def test_every_id_that_is_asked_for_exists() -> None:
    asked = {
        (place, node.value)
        for place, _, node in _asked_for()
        # Other things have a method `text` too; only ids have a dot.
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
    }
    assert {found for found in looks if found[1] not in TEXTS} == set()


def test_every_family_of_ids_has_members() -> None:
    patterns = {(place, _pattern(node)) for place, _, node in _asked_for() if isinstance(node, ast.JoinedStr)}
    assert patterns
    assert {found for found in patterns if not any(re.fullmatch(found[1], text_id) for text_id in TEXTS)} == set()


def test_every_parameter_of_a_text_is_given() -> None:
    """At every place where the id and the parameters are written out."""
    missing = []
    checked = 0
    for place, call, node in _asked_for():
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
    families = [re.compile(pattern) for pattern in _FAMILIES]
    unused = [
        text_id
        for text_id in TEXTS
        if text_id not in _CONSTANTS and not any(family.fullmatch(text_id) for family in families)
    ]
    assert unused == []


@pytest.mark.parametrize(
    ("family", "members"),
    [
        ("memory.content.{}", [content.value for content in Content]),
        ("dryrun.show.backend.{}", [backend.value for backend in Backend]),
        ("dryrun.check.{}", [backend.value for backend in Backend]),
        ("dryrun.show.{}", [verdict.value for verdict in Verdict]),
        ("dryrun.show.{}", ["peak", "footprint", "usable", "verdict"]),
        ("stages.column.{}", ["stage", "rank", "layers", "weights", "optimizer_state", "activations", "peak"]),
        ("stages.column.{}", ["footprint", "whole", "limit", "verdict", "variant", "settings", "change", "content"]),
        ("stages.column.{}", ["simulated", "real", "difference", "share", "simulated_footprint", "real_footprint"]),
        ("dryrun.show.{}", ["extrapolated"]),
        ("dryrun.progress.{}", ["start", "build", "compile", "step", "write", "remote"]),
        (
            "dryrun.check.label.{}",
            ["machine", "python", "cores", "mindspore", "mindformers", "numpy", "compiler", "cann"],
        ),
    ],
)
def test_every_member_of_a_family_has_a_text(family: str, members: list[str]) -> None:
    assert [family.format(member) for member in members if family.format(member) not in TEXTS] == []
