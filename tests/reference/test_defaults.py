"""Compare the default sizes of MindFormers' model classes with the wheels, and test their effect."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from ms_tune.dryrun.request import DryrunRequest, PreparedRun
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.reference.job import ReferenceJob
from ms_tune.text import Language, render
from tests import dynamic_jobs
from tests.dryrun.configs import source_of
from tests.reference.configs import CASES


def prepared(config: dict[str, Any], devices: int) -> PreparedRun:
    request = DryrunRequest(config=Path("config.yaml"), reference=True)
    return dynamic_jobs.prepare(source_of(config), "config.yaml", request, devices, Dialect.MINDFORMERS_PYNATIVE)


def without(name: str, *keys: str) -> dict[str, Any]:
    config = copy.deepcopy(CASES[name].config)
    for key in keys:
        del config["model"][key]
    return config


def test_a_size_that_is_missing_is_taken_and_reported() -> None:
    run = prepared(without("DeepSeek-V3", "kv_lora_rank", "n_routed_experts"), 8)
    assert isinstance(run.job, ReferenceJob)
    shape = run.job.config.shape
    assert shape.latent is not None
    assert shape.latent.key_value_rank == 512
    assert shape.experts is not None
    assert shape.experts.routed == 256
    for language in Language:
        messages = [render(message, language) for message in run.warnings if message.id == "reference.defaults"]
        assert [("kv_lora_rank: 512" in text, "n_routed_experts: 256" in text) for text in messages] == [(True, True)]


def test_another_name_of_a_size_counts_and_so_does_null() -> None:
    config = without("Qwen3-MoE", "num_experts", "num_hidden_layers")
    config["model"] |= {"num_moe_experts": 8, "num_layers": 4}
    assert not any(message.id == "reference.defaults" for message in prepared(config, 8).warnings)
    config = without("DeepSeek-V3, without pipeline", "q_lora_rank")
    config["model"]["q_lora_rank"] = None
    run = prepared(config, 4)
    assert isinstance(run.job, ReferenceJob)
    assert run.job.config.shape.latent is not None
    assert run.job.config.shape.latent.query_rank is None
    assert not any(message.id == "reference.defaults" for message in run.warnings)


def test_a_model_of_a_class_that_is_not_known_needs_all_its_sizes() -> None:
    config = without("Qwen3", "vocab_size")
    config["model"]["model_type"] = "of_my_own"
    with pytest.raises(ConfigError, match="vocab_size"):
        prepared(config, 4)
