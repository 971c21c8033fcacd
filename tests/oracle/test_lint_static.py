"""Compare lint's errors with MindFormers' behaviour: every error stops the run, and everything that stops a run is an error.

Each random config is started with the code inside the wheel (see :mod:`tests.oracle.framework_child`) and linted for the
same release.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random

from ms_tune.diagnostics import Severity
from ms_tune.enums import Dialect
from ms_tune.facts.query import VERSIONS
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language
from tests.oracle.amount import cases
from tests.oracle.cases import text_of
from tests.oracle.framework import Framework, framework_of
from tests.oracle.lint_cases import random_config
from tests.oracle.network_cases import random_network
from tests.oracle.whole_cases import left_out

CASES = cases(40, 75)  # of each release
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))
CHECKS = built_in(Dialect.MINDFORMERS)
# Without its class no model is built, and nothing is compared.
NEEDED = ("model.model_config.type", "model.model_config.model_type")
TRAPS = {
    "MST442",
    "MST552",
    "MST553",
}  # it trains another model than the config's; here no trainer is built, and the first step does not run


framework = framework_of(VERSIONS)


def errors(text: str, version: str) -> list[str]:
    """Return lint's errors in a config, and every check that failed itself."""
    findings = lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS, CHECKS, version)
    ids = [one for one in findings if one.severity is Severity.ERROR or one.id == "MST001"]
    ids = [one for one in ids if one.id not in TRAPS]
    return [f"{one.id} {one.message.say(Language.EN)} ({one.consequence})" for one in ids]


# MindFormers accepts a model without layers, which is never intended; data sets and what comes after the network are not
# built here, nor is the shape of attention computed.
_UNSEEN = (" 0 layers", "'train_dataset.data_loader' needs", "MST569", "stops-before-step", "stops-later")


def compare(framework: Framework, text: str) -> str:
    """Return how both answer; assert that they agree."""
    refusal, reported = framework.refusal(text), errors(text, framework.version)
    assert not any(one.startswith("MST001") for one in reported), f"{reported}\n{text}"
    if not refusal:
        reported = [one for one in reported if not any(part in one for part in _UNSEEN)]
    assert bool(reported) == bool(refusal), f"MindFormers: {refusal}\nlint: {reported}\n{text}"
    return refusal.step if refusal else "fine"


def test_random_configs(framework: Framework) -> None:
    random = Random(SEED)  # noqa: S311 - the same cases every time
    seen: Counter[str] = Counter()
    for _ in range(CASES):
        seen[compare(framework, text_of(left_out(random, random_config(random, framework.version), NEEDED)))] += 1
    assert seen["fine"] > (
        CASES // 20 if CASES >= 200 else 0
    )  # missing keys stop most of them; few may stop nearly all
    assert {"load", "context", "trainer", "batches", "rules", "network"} <= seen.keys() or CASES < 200


def test_random_networks(framework: Framework) -> None:
    random = Random(SEED)  # noqa: S311 - the same cases every time
    seen = Counter(compare(framework, text_of(left_out(random, random_network(random), NEEDED))) for _ in range(CASES))
    assert seen["fine"] > CASES // 4
    assert seen["network"] > CASES // 10


def test_an_endless_loop_is_an_error(framework: Framework) -> None:
    text = """
run_mode: train
use_parallel: True
runner_config: {batch_size: 1}
train_dataset: {data_loader: {type: MindDataset}}
parallel_config: {pipeline_stage: 2}
recompute_config: {recompute: [-1, 0]}
model: {model_config: {type: LlamaConfig, num_layers: 4, num_heads: 8, hidden_size: 64, offset: 0}}
"""
    refusal = framework.refusal(text)
    assert refusal is not None
    assert refusal.error == "endless-loop"
    assert errors(text, framework.version)
    assert framework.refusal(text.replace("-1", "1")) is None
    assert errors(text.replace("-1", "1"), framework.version) == []
