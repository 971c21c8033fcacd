"""Test the settings of MindSpeed-MM by release, and the detection of its files."""

from __future__ import annotations

import pytest

from ms_tune.dialects.mindspeed_mm.detect import is_config, is_tools
from ms_tune.facts.mindspeed_mm import MultimodalSetting, ever, settings

SHARDED = {"fully_shard_parallel_size": 8}


def test_settings_are_of_a_release() -> None:
    assert "features.chunkloss_plan" not in settings("26.0")
    assert settings("26.1")["features.chunkloss_plan"] == MultimodalSetting(("dict",), (), None)
    assert set(settings("26.0")) | set(settings("26.1")) <= ever()
    assert all(all(one.types) for one in settings("26.1").values())
    assert any(one.choices for one in settings("26.1").values())
    assert any(one.default is not None for one in settings("26.1").values())


@pytest.mark.parametrize(
    ("data", "known"),
    [
        ({"parallel": SHARDED, "training": {}}, True),
        ({"parallel": {"fsdp_plan": {}}, "features": {}}, True),
        ({"parallel": {"ring_attention_size": 1}, "features": {}}, True),
        ({"parallel": SHARDED, "training": 1}, False),
        ({"parallel": SHARDED}, False),
        ({"parallel": ["fsdp_plan"], "training": {}}, False),
        ({"training": {}}, False),
        (None, False),
    ],
    ids=str,
)
def test_a_yaml(data: object, known: bool) -> None:  # noqa: FBT001 - a column
    assert is_config(data) is known


@pytest.mark.parametrize(
    ("data", "known"),
    [
        ({"profile": {"profile_type": "static"}}, True),
        ({"profile": {}, "memory_profile": {}}, True),
        ({"profile": {}}, False),
        ({"profile": {}, "memory_profile": 1}, False),
        ({"memory_profile": {}}, False),
        ({"profile": {"profile_type": "static"}, "parallel": {}}, False),
        ({"profile": ["profile_type"]}, False),
        ([], False),
    ],
    ids=str,
)
def test_a_tools_json(data: object, known: bool) -> None:  # noqa: FBT001 - a column
    assert is_tools(data) is known
