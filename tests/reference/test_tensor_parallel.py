"""Test the rules of MindFormers' dynamic graph on tensor-parallel ranks that ms-tune once had wrong."""

from __future__ import annotations

from typing import Any

import pytest

from ms_tune.dryrun import dynamic
from ms_tune.dryrun.request import DryrunRequest, PreparedRun
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts import query
from ms_tune.facts.training import Framework
from ms_tune.reference.job import ReferenceJob
from ms_tune.text import Language, render
from tests import dynamic_jobs
from tests.dryrun.configs import edited, source_of
from tests.dryrun.test_dynamic_oracle import MODELS, REST
from tests.reference.configs import CASES

ROUNDED_UP = 64 * 1024  # weights are blocks of whole 512 bytes, and the router has counters


def prepared(config: dict[str, Any], devices: int) -> PreparedRun:
    request = DryrunRequest(reference=True)
    return dynamic_jobs.prepare(source_of(config), "config.yaml", request, devices, Dialect.MINDFORMERS_PYNATIVE)


def split(config: dict[str, Any], release: str, monkeypatch: pytest.MonkeyPatch, devices: int = 2) -> bool:
    """Return whether the loss is computed from the parts of the logits."""
    monkeypatch.setattr(query, "installed_version", lambda _: f"{release}.0")
    job = prepared(config, devices).job
    assert isinstance(job, ReferenceJob)
    return job.config.parallelism.split_loss


def job(name: str, tensor: int, expert: int = 1, **keys: object) -> dict[str, Any]:
    parallelism = {"tensor_parallel": tensor, "sequence_parallel": tensor > 1, "expert_parallel": expert, **keys}
    return {
        **REST,
        "model": {**MODELS[name], "num_hidden_layers": 2},
        "parallelism": {**REST["parallelism"], **parallelism},
    }


@pytest.mark.parametrize("written", [None, False, True])
def test_the_loss_is_split_whatever_the_key_says_since_2_1(
    written: bool | None,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = job("deepseek_v3", 2, **({} if written is None else {"enable_loss_parallel": written}))
    assert split(config, "2.1", monkeypatch)
    assert split(config, "2.0", monkeypatch) is bool(written)


@pytest.mark.parametrize(("tensor", "expert", "real"), [(2, 1, 169_453_056), (2, 2, 144_287_232)])
def test_without_expert_parallelism_every_rank_has_all_experts(tensor: int, expert: int, real: int) -> None:
    """MindFormers 2.1's own trainer listed these bytes of weights on rank 0 (tests/oracle/stand_in)."""
    theory = prepared(job("deepseek_v3", tensor, expert), 2).theory
    assert theory["weights"] == pytest.approx(real, abs=ROUNDED_UP)


@pytest.mark.parametrize("request_", [DryrunRequest(), DryrunRequest(reference=True)])
def test_a_pipeline_that_cannot_start_gets_no_figure(request_: DryrunRequest) -> None:
    config = edited(CASES["Qwen3"].config, "parallelism.pipeline_parallel", 2)
    with pytest.raises(ConfigError, match="layer_start") as raised:
        dynamic_jobs.prepare(source_of(config), "c.yaml", request_, 4, Dialect.MINDFORMERS_PYNATIVE)
    assert raised.value.exit_code == 2
    for language in Language:
        assert "qwen3" in render(raised.value.message, language)


@pytest.mark.parametrize("request_", [DryrunRequest(), DryrunRequest(reference=True)])
def test_a_model_that_2_0_cannot_split_gets_no_figure(request_: DryrunRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "installed_version", lambda _: "2.0.0")
    with pytest.raises(ConfigError, match="q_lora_rank") as raised:
        dynamic_jobs.prepare(source_of(job("qwen3", 2)), "c.yaml", request_, 2, Dialect.MINDFORMERS_PYNATIVE)
    assert raised.value.exit_code == 2
    assert raised.value.hint is not None
    alone = job("deepseek_v3", 2)
    alone["model"]["n_shared_experts"] = 0
    with pytest.raises(ConfigError, match="shared_experts not found"):
        dynamic_jobs.prepare(source_of(alone), "c.yaml", request_, 2, Dialect.MINDFORMERS_PYNATIVE)
    assert prepared(job("qwen3", 1), 1).world_size == 1
    monkeypatch.setattr(query, "installed_version", lambda _: "2.1.0")
    assert prepared(job("qwen3", 2), 2).world_size == 2


def test_2_0_splits_the_sequence_whatever_the_config_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "installed_version", lambda _: "2.0.0")
    unsaid = job("deepseek_v3", 2)
    del unsaid["parallelism"]["sequence_parallel"]
    assert prepared(unsaid, 2).theory == prepared(job("deepseek_v3", 2), 2).theory


@pytest.mark.parametrize(
    ("config", "devices", "release", "texts"),
    [
        (job("qwen3", 1), 1, "2.1", ["one-device"]),
        (job("qwen3", 2), 2, "2.1", ["held"]),
        (job("deepseek_v3", 2), 2, "2.0", ["tensor-2.0"]),
        (CASES["DeepSeek-V3"].config, CASES["DeepSeek-V3"].devices, "2.1", ["one-device", "sharded", "pipeline"]),
        (CASES["Qwen3"].config, 4, "2.1", ["one-device", "sharded"]),
    ],
)
def test_a_run_says_what_holds_it_and_what_does_not(
    config: dict[str, Any], devices: int, release: str, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "installed_version", lambda _: f"{release}.0")
    standing = prepared(config, devices).standing
    assert [message.id for message in standing] == [f"reference.standing.{text}" for text in texts]
    for language in Language:
        assert all(render(message, language) for message in standing)


def test_the_frameworks_own_code_needs_no_such_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic, "pynative_framework", lambda: Framework("mindformers.pynative", "MindFormers 2.1.0"))
    run = dynamic_jobs.prepare(
        source_of(job("qwen3", 2)), "config.yaml", DryrunRequest(), 2, Dialect.MINDFORMERS_PYNATIVE
    )
    assert run.standing == ()
