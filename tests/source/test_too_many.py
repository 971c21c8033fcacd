"""Test values beyond the limit: the reason names aliases only if there are some."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.errors import ConfigError
from ms_tune.source import yaml_nodes
from ms_tune.source.yaml import parse_source


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("".join(f"k{number}: 1\n" for number in range(60)), "config.too-many-written"),
        ("a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(f"k{n}: *a\n" for n in range(9)), "config.too-many"),
    ],
)
def test_the_reason_is_the_right_one(text: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_nodes, "MAX_VALUES", 50)
    with pytest.raises(ConfigError) as caught:
        parse_source(text, Path("a.yaml"))
    assert caught.value.message.id == reason
