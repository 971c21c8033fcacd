"""Rules that came after MindFormers 1.3 are not held against a config that is checked for 1.3."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.config.source import parse_source
from ms_tune.frameworks.dialect import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint

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
