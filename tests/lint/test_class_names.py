"""Test names of classes with those that MindFormers registers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.lint.check_registries import unregistered
from ms_tune.source.yaml import parse_source
from tests.jobs import context

STATIC, DYNAMIC, *_ = YAML_DIALECTS


def find_similar(
    text: str, names: dict[str, str], dialect: Dialect = STATIC, version: str = "1.9"
) -> list[tuple[object, ...]]:
    read = context(parse_source(text, Path("a.yaml")), dialect, {"names": names}, version)
    return [(one.message, one.params["name"], one.params["similar"]) for one in unregistered(read)]


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("AdamW", "1.6", []),
        ("adamw", "1.9", [("similar", "adamw", "adam")]),
        ("Zzz", "1.9", [("default", "Zzz", "")]),
        ("Muon", "1.8", []),
        ("Muon", "1.7", [("later", "Muon", "")]),
        ("3", "1.7", [("default", "3", "")]),
        ("[AdamW]", "1.7", [("similar", "['AdamW']", "AdamW")]),
        ("{a: 1}", "1.9", [("default", "{'a': 1}", "")]),
        ("[]", "1.9", [("default", "[]", "")]),
    ],
)
def test_a_name_of_a_release(name: str, version: str, expected: list[tuple[object, ...]]) -> None:
    assert find_similar(f"optimizer: {{type: {name}}}", {"optimizer.type": "optimizer"}, version=version) == expected


def test_every_item_of_a_list() -> None:
    text = "callbacks: [{type: MFLossMonitor}, {type: MFLossMoniter}, {}, 3, {type: null}]"
    assert find_similar(text, {"callbacks.*.type": "callback"}) == [("similar", "MFLossMoniter", "MFLossMonitor")]


def test_own_classes_and_lists_of_networks() -> None:
    names = {"model.model_config.architectures": "core_model"}
    assert find_similar("model: {model_config: {architectures: [Qwen3ForCausalLM, x]}}", names) == []
    assert find_similar("model: {model_config: {architectures: [Mine]}}", names) == [("default", "Mine", "")]
    assert find_similar("model: {model_config: {architectures: [Mine], auto_register: a.Mine}}", names) == []
    assert find_similar("model: {model_config: {architectures: []}}", names) == []
