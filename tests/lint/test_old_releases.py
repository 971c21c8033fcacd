"""Rules that came after MindFormers 1.3 are not held against a config that is checked for 1.3."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source

CASES = {
    # RunnerConfig of 1.3.2 (mindformers/trainer/config_args.py) lists it; the template of 1.6 does not.
    "MST203": "runner_config:\n  epochs: 1\n  image_size: 224\n",
    "MST204": "run_mode: train\nrecompute_config:\n  recompute: False\n  layers: 2\n",
    # check_rules.py has _check_moe_parallel_valid in 1.6.0 and not in 1.3.2.
    "MST325": "use_parallel: True\nparallel_config:\n  model_parallel: 8\nmoe_config:\n  expert_num: 8\n",
}


@pytest.mark.parametrize("check", CASES)
@pytest.mark.parametrize(("version", "applies"), [("1.3", False), ("1.6", True), ("2.1", True)])
def test_a_rule_applies_from_its_release_on(check: str, version: str, *, applies: bool) -> None:
    source = parse_source(CASES[check], Path("config.yaml"))
    found = lint(source, Dialect.MINDFORMERS, built_in(Dialect.MINDFORMERS), version)
    assert (check in {finding.id for finding in found}) is applies


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
    """As ``GeneralConfig`` and ``MonitorConfig`` of each release's template have it; the latter refuses other keys."""
    names = {check.id: check.name for check in built_in(Dialect.MINDFORMERS)}
    source = parse_source("run_mode: train\n" + text, Path("config.yaml"))
    found = lint(source, Dialect.MINDFORMERS, built_in(Dialect.MINDFORMERS), version)
    wanted = {"unexpected-training-key", "misspelt-key", "unused-key"}
    assert [names[one.id] for one in found if names[one.id] in wanted] == expected
