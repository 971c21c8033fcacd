"""Check that conversions of arbitrary configs end: settings that preserve every layer, or a problem that names the lost parts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from yaml import YAMLError

from ms_tune.diagnostics import Severity
from ms_tune.dialects.mindformers.placement import KEYS
from ms_tune.enums import RecomputeMode
from ms_tune.errors import MsTuneError
from ms_tune.text import Language, render
from tests.jobs import convert_source, normalize_source
from tests.normalize.conversion_cases import config_of, source_of
from tests.oracle import cases, mindspeed_cases, pynative_cases

DIALECTS = ("mindformers", "mindformers-pynative", "mindspeed-ms")


def wild(random: Random, dialect: str) -> dict[str, Any]:
    """Return a config like those of the comparisons with the frameworks' code, valid or not."""
    if dialect == "mindspeed-ms":
        return {"training_config": {}, **mindspeed_cases.random_config(random)}
    if dialect == "mindformers-pynative":
        config, layers, ahead = pynative_cases.random_config(random, "2.1")
        named = {"num_layers": layers, "mtp_num_layers": ahead, "model_type": random.choice(("qwen3", "own"))}
        return {"training": {"steps": 1}, **config, "model": named}
    inputs = cases.random_case(random)
    model: dict[str, Any] = {"num_layers": inputs.layers, "offset": inputs.offset}
    if inputs.interleave_num is not None:
        model["pp_interleave_num"] = inputs.interleave_num
    return {
        "run_mode": "train",
        "use_legacy": inputs.legacy,
        "parallel": {
            "pipeline_config": {"pipeline_interleave": inputs.interleave, "pipeline_scheduler": inputs.scheduler}
        },
        "parallel_config": {"pipeline_stage": inputs.stages, "micro_batch_num": inputs.micro_batches},
        "model": {"arch": {"type": random.choice(("LlamaForCausalLM", "Own"))}, "model_config": model},
        "recompute_config": dict(zip(KEYS, inputs.values, strict=True)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("to", DIALECTS)
@pytest.mark.parametrize("start", DIALECTS)
def test_any_plan_is_kept_or_said_to_be_lost(start: str, to: str) -> None:
    kept = 0
    for seed in range(60):
        random = Random(seed)  # noqa: S311 - reproducible
        try:
            source = source_of(wild(random, start))
        except (MsTuneError, YAMLError):
            continue  # values that YAML cannot represent
        try:
            converted = convert_source(source, to)
        except MsTuneError:
            continue
        for problem in converted.problems:
            assert all(render(problem.message, language) for language in Language)
        if any(problem.severity is Severity.ERROR for problem in converted.problems):
            continue
        before = normalize_source(source)
        after = normalize_source(config_of(converted.values, to, {}))
        assert after.failure is None, (seed, after.failure)
        full = [layer.recompute is RecomputeMode.FULL for layer in before.layers]
        count = min(len(full), len(after.layers))
        assert [layer.recompute is RecomputeMode.FULL for layer in after.layers[:count]] == full[:count], seed
        kept += 1
    assert kept > 4
