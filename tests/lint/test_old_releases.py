"""Check that rules that came after MindFormers 1.3 do not apply to a config for 1.3."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ("monitor_config: {health_checkpoint: null}\n", "1.8", ["unexpected-training-key"]),
        ("monitor_config: {health_checkpoint: null}\n", "1.9", []),
        ("monitor_config: {max_attention_logit_format: log}\n", "1.7", ["unexpected-training-key"]),
        ("monitor_config: {max_attention_logit_format: log}\n", "1.8", []),
        ("ckpt_use_legacy_format: False\n", "1.7", []),
        ("ckpt_use_legacy_format: False\n", "1.8", ["misspelt-key"]),
        ("use_legacy_format: False\n", "1.7", ["misspelt-key"]),
        ("reshard_worker_num: 2\n", "1.8", ["unused-key"]),
        ("reshard_worker_num: 2\n", "1.9", []),
    ],
)
def test_a_key_is_one_of_the_release_that_is_asked_for(text: str, version: str, expected: list[str]) -> None:
    """As in ``GeneralConfig`` and ``MonitorConfig`` of each release's template; the latter refuses other keys."""
    names = {check.id: check.name for check in built_in(Dialect.MINDFORMERS)}
    source = parse_source("run_mode: train\n" + text, Path("config.yaml"))
    found = lint(source, Dialect.MINDFORMERS, built_in(Dialect.MINDFORMERS), version)
    wanted = {"unexpected-training-key", "misspelt-key", "unused-key"}
    assert [names[one.id] for one in found if names[one.id] in wanted] == expected
