"""Test what is read of a job from the lines before its first step, in each trainer's own format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune import MetricsRequest, measure_runs
from ms_tune.facts.query import load
from ms_tune.metrics.job import read_logged_job
from ms_tune.metrics.result import Convention
from ms_tune.readers.logged_settings import LoggedSettings, read_settings
from ms_tune.text import Language

MEGATRON = """using world size: 16, data-parallel size: 4, context-parallel size: 1 tensor-model-parallel size: 2
------------------------ arguments ------------------------
  global_batch_size ............................... 512
  seq_length ...................................... 4096
  encoder_seq_length .............................. 4096
  world_size ...................................... 16
-------------------- end of arguments ---------------------
"""
DEEPSPEED = """[2023-08-02 00:41:17,457] [INFO] [config.py:964:print]   train_batch_size ............. 8
[2023-08-02 00:41:17,457] [INFO] [config.py:964:print]   train_micro_batch_size_per_gpu  8
[2023-08-02 00:41:17,457] [INFO] [config.py:964:print]   world_size ................... 4
"""
TRANSFORMERS = """[INFO|trainer.py:2409] 2025-01-01 10:00:00,000 >>   Instantaneous batch size per device = 2
[INFO|trainer.py:2412] 2025-01-01 10:00:00,000 >>   Total train batch size (w. parallel, distributed & accumulation) = 1,024
"""
MINDFORMERS = (
    "2025-01-01 10:00:00,000 - mindformers/output/log[mindformers/trainer/base_trainer.py:285] - INFO - "
    "global_batch_size = batch_size_per_card * device_num * gradient_accumulation_steps = 16 = 1 * 8 * 2\n"
)
PER_BATCH = "INFO - global_batch_size = per_batch_size * data_parallel = 8 * 4 = 32\n"
TITAN = (
    "[titan] 2025-01-01 10:00:00,000 - root - INFO - Training starts at step 1, with local batch size 1, global batch size 8, "
    "sequence length 2048, total steps 1000 (warmup 200)\n"
)
MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 64,
    "vocab_size": 151936,
    "hidden_act": "silu",
}
# A forward pass per token: projections of queries, keys, values and outputs; the gated MLP; scores; the head.
LAYER = 2 * 5120 * 128 * (64 + 2 * 8) + 2 * 5120 * 128 * 64 + 3 * 2 * 5120 * 25600 + 2 * 2 * 4096 * 64 * 128
FORWARD = 64 * LAYER + 2 * 5120 * 151936


@pytest.mark.parametrize(
    ("head", "settings"),
    [
        pytest.param(MEGATRON, LoggedSettings(16, 512, 4096), id="megatron"),
        pytest.param(
            "".join(f"[default3]:{line}\n" for line in MEGATRON.splitlines()),
            LoggedSettings(16, 512, 4096),
            id="torchrun",
        ),
        pytest.param(DEEPSPEED, LoggedSettings(4, 8), id="deepspeed"),
        pytest.param(TRANSFORMERS, LoggedSettings(batch=1024), id="transformers"),
        pytest.param(MINDFORMERS, LoggedSettings(batch=16), id="product first"),
        pytest.param(PER_BATCH, LoggedSettings(batch=32), id="product last"),
        pytest.param(TITAN, LoggedSettings(batch=8, tokens=2048), id="torchtitan"),
        pytest.param(
            f"{MEGATRON}  variable_seq_lengths ............................ True\n",
            LoggedSettings(16, 512),
            id="samples of several lengths",
        ),
        pytest.param(
            f"{MEGATRON}  variable_seq_lengths ............................ False\n",
            LoggedSettings(16, 512, 4096),
            id="samples of one length",
        ),
        pytest.param(MEGATRON + DEEPSPEED, LoggedSettings(tokens=4096), id="two answers are none"),
        pytest.param("step 1 world size unknown\n", LoggedSettings(), id="nothing"),
    ],
)
def test_each_trainer(head: str, settings: LoggedSettings) -> None:
    assert read_settings(head.encode()) == settings


def hyper_parallel(mode: str | None, prefix: str = "", seconds: float = 60.0) -> str:
    """Return a log in the format of HyperParallel at 0016d837 (trainer/base.py, callbacks/logging_callback.py)."""
    config = {
        "training": {"train_iters": 100, "global_batch_size": 512, "micro_batch_size": 1},
        "activation_checkpoint": {"mode": mode},
        "dataset": {"data_transform": {"data_type": "plaintext", "max_seq_len": 4096}},
    }
    logger = "2026-10-02 11:00:00,123 [INFO] hyper_parallel.trainer.base: "
    text = f"{logger}Trainer config:\n{json.dumps(config, indent=2)}\n{logger}Process rank: 0, world size: 64\n"
    text += f"{logger}Model config:\n{json.dumps(MODEL, indent=2)}\n"
    for step in range(1, 21):
        values = {"data/step_samples": 512, "performance/step_time": seconds, "training/total_loss": 5 - step / 100}
        text += f"step={step} epoch=0 " + " ".join(f"{name}={value:.9g}" for name, value in values.items()) + "\n"
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


# Parameters that a token uses, in billions, as published: 6 operations per parameter and token, without the scores.
ACTIVE = [
    ("Llama-3.1-8B", 8.03),
    ("Mistral-7B-v0.1", 7.24),
    ("Qwen3-30B-A3B", 3.35),
    ("DeepSeek-V3", 37.5),
    ("Yi-34B", 34.4),
]


@pytest.mark.parametrize(("name", "billions"), ACTIVE)
def test_the_operations_of_public_families_follow_from_their_published_sizes(
    tmp_path: Path, name: str, billions: float
) -> None:
    config = load("sizes")["models"][name]["config"]
    job = read_logged_job(LoggedSettings(tokens=4096, model=config), tmp_path / "train.log")
    assert job is not None
    words = config["vocab_size"] * config["hidden_size"] / 1e9  # of the embedding, which multiplies nothing
    assert job.work.model[Convention.SIX_N] / 6e9 == pytest.approx(billions - words, rel=0.02)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "unheard"},
        {"num_hidden_layers": 10**9},
        {"hidden_size": "5120"},
        {"vocab_size": None},
    ],
)
def test_a_model_that_is_not_known_has_no_operations(tmp_path: Path, change: dict[str, object]) -> None:
    assert read_logged_job(LoggedSettings(tokens=4096, model={**MODEL, **change}), tmp_path / "train.log") is None


@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "0: "])
@pytest.mark.parametrize("mode", ["off", None, "full", "selective"])
def test_the_mfu_of_hyper_parallel_needs_only_the_chip(tmp_path: Path, mode: str | None, prefix: str) -> None:
    log = tmp_path / "train.log"
    log.write_text(hyper_parallel(mode, prefix), encoding="utf-8")
    run = measure_runs(log, request=MetricsRequest(peak_tflops=280.0)).runs[-1]
    rate = 3 * FORWARD * 512 * 4096 / 64 / 60 / 1e12
    assert run.value("mfu") == pytest.approx(rate / 280)
    figure = run.figure("mfu")
    assert figure is not None
    assert "(from the log)" in figure.inputs[0].say(Language.EN)
    again = FORWARD - 2 * 5120 * 151936  # the head does not run again
    hardware = {"full": rate + again * 512 * 4096 / 64 / 60 / 1e12, "selective": None}.get(mode or "off", rate)
    assert run.value("hfu") == (None if hardware is None else pytest.approx(hardware / 280))


@pytest.mark.parametrize("section", ["gradient_checkpointing", "elsewhere"])  # the first is that of older generations
def test_what_is_recomputed_is_not_guessed(tmp_path: Path, section: str) -> None:
    log = tmp_path / "train.log"
    log.write_text(hyper_parallel("full").replace("activation_checkpoint", section), encoding="utf-8")
    run = measure_runs(log, request=MetricsRequest(peak_tflops=280.0)).runs[-1]
    assert run.value("mfu") is not None
    assert run.value("hfu") is None


def test_settings_of_the_first_run_are_not_those_of_the_next(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(hyper_parallel("off") + hyper_parallel("off").split("\n", 30)[-1], encoding="utf-8")
    report = measure_runs(log, request=MetricsRequest(peak_tflops=280.0))
    assert len(report.runs) == 2
    assert [run.value("mfu") for run in report.runs] == [None, None]


def test_a_model_config_that_is_cut_off_gives_none(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(hyper_parallel("off").replace('"hidden_act": "silu"\n}', '"hidden_act"'), encoding="utf-8")
    run = measure_runs(log, request=MetricsRequest(peak_tflops=280.0)).runs[-1]
    assert run.value("mfu") is None
    assert run.value("samples_per_second_per_card") == pytest.approx(512 / 64 / 60)
