"""Test MindFormers' dynamic-graph configs where its own trainer is installed: its detection, and its input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dryrun import dynamic as reference
from ms_tune.dryrun.job import Column, PynativeJob
from ms_tune.dryrun.request import STEPS, DryrunRequest, PreparedRun
from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError
from ms_tune.facts.training import Framework, pynative_framework
from ms_tune.reference.job import ReferenceJob
from ms_tune.text import Language, Message, render
from tests import dynamic_jobs
from tests.dryrun.configs import edited, source_of
from tests.dryrun.fuzz import VALUES, paths, replaced
from tests.reference.configs import CASES

QWEN = CASES["Qwen3"].config
DEEPSEEK = CASES["DeepSeek-V3"].config
TRAINS = "enable_mindspore_backward_compat()"
MODULES = {
    "mindformers": ["pynative/trainer/trainer.py"],
    "hyper_parallel": ["core/dtensor/dtensor.py", "platform/mindspore/autograd_compat.py"],
}


def install(folder: Path, modules: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Put packages on the path that must not be imported, and nothing but them."""
    for package, files in modules.items():
        for file in ("__init__.py", *files):
            path = folder / package / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"raise AssertionError('imported')\n# {TRAINS}", encoding="utf-8")
    # Hide installed packages; for packages only the last finder, that of the path, searches.
    monkeypatch.setattr(sys, "path", [str(folder)])


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "pynative_framework", lambda: Framework("mindformers.pynative", "MindFormers 2.0.0"))


def prepared(config: dict[str, Any], devices: int | None = 4, request: DryrunRequest | None = None) -> PreparedRun:
    given = request or DryrunRequest()
    return dynamic_jobs.prepare(source_of(config), "config.yaml", given, devices, Dialect.MINDFORMERS_PYNATIVE)


def job_of(run: PreparedRun) -> PynativeJob:
    assert isinstance(run.job, PynativeJob)
    return run.job


def handed_over(run: PreparedRun) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(run.files[job_of(run).config_file])
    return loaded


@pytest.mark.parametrize(
    "recompute",
    [
        {"mode": "full", "full_recompute_layer": ["0-3"]},
        {"mode": "select", "select_module": {"self_attention": ["0-3"]}},
    ],
)
def test_the_reference_recomputes_nothing_on_one_device(recompute: dict[str, Any]) -> None:
    config = {**QWEN, "recompute": recompute}
    config["parallelism"] = {"tensor_parallel": 1, "data_parallel_shard": 1}
    alone = prepared(config, 1, DryrunRequest(reference=True))
    plain = prepared({**config, "recompute": {"mode": "None"}}, 1, DryrunRequest(reference=True))
    assert alone.job == plain.job
    assert "reference.one-device" in {message.id for message in alone.warnings}
    assert "reference.one-device" not in {message.id for message in plain.warnings}
    config["parallelism"] = {"tensor_parallel": 2, "sequence_parallel": True, "data_parallel_shard": 1}
    more = prepared(config, 2, DryrunRequest(reference=True))
    assert any(kind.recompute is not RecomputeMode.NONE for kind in more.kinds)
    assert "reference.one-device" not in {message.id for message in more.warnings}


def test_the_trainer_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, MODULES, monkeypatch)
    found = pynative_framework()
    assert isinstance(found, Framework)
    assert found.package == "mindformers.pynative"
    assert found.name.startswith("MindFormers")


@pytest.mark.parametrize(
    ("modules", "text"),
    [
        ({}, "pynative.no-mindformers"),
        ({"hyper_parallel": MODULES["hyper_parallel"]}, "pynative.no-mindformers"),
        ({"mindformers": ["trainer/trainer.py"]}, "pynative.no-trainer"),
        ({"mindformers": MODULES["mindformers"]}, "pynative.no-hyper-parallel"),
        ({**MODULES, "hyper_parallel": ["core/hsdp.py"]}, "pynative.other-hyper-parallel"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(
    modules: dict[str, list[str]], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, modules, monkeypatch)
    missing = pynative_framework()
    assert isinstance(missing, Message)
    assert missing.id == text
    run = prepared(QWEN)
    assert isinstance(run.job, ReferenceJob)
    assert run.not_included[0] == Message("pynative.not-started", {"missing": missing})
    for language in Language:
        assert "\n" not in render(run.not_included[0], language)
    assert not run.warnings


def changed(run: PreparedRun) -> dict[str, tuple[object, object]]:
    return {change.key: (change.before, change.after) for change in run.changes}


@pytest.mark.usefixtures("trainer")
def test_the_trainer_gets_the_users_config_but_for_what_reads_writes_or_waits() -> None:
    config = edited(QWEN, "training", {"local_batch_size": 1, "global_batch_size": 8, "steps": 5000})
    config["checkpoint"] = {"enable_save": True, "load_path": "/data/weights", "save_max": 3}
    config["callbacks"] = [{"type": "MaxLogitsMonitor"}]
    config["monitor"] = {"train_state": {"local_loss": True}}
    run = prepared(config, devices=1)
    data = {
        "dataloader": {
            "type": "BlendedMegatronDatasetDataLoader",
            "column_names": ["input_ids", "labels"],
            "config": {"create_compressed_eod_mask": False},
        },
        "num_parallel_workers": 1,
    }
    assert changed(run) == {
        "checkpoint.load_path": ("/data/weights", None),
        "checkpoint.enable_save": (True, False),
        "callbacks": ([{"type": "MaxLogitsMonitor"}], None),
        "monitor": ({"train_state": {"local_loss": True}}, None),
        "train_dataset": (config["train_dataset"], data),
        "training.steps": (5000, STEPS),
    }
    expected = edited(edited(config, "train_dataset", data), "training.steps", STEPS)
    expected["checkpoint"] = {"enable_save": False, "save_max": 3}
    del expected["callbacks"], expected["monitor"]
    assert handed_over(run) == expected
    assert job_of(run).samples == STEPS * 8
    assert run.model.id == "pynative.by-trainer"
    assert run.theory


@pytest.mark.usefixtures("trainer")
def test_a_batch_that_grows_is_run_at_its_full_size() -> None:
    run = prepared(edited(QWEN, "training.rampup_batch_size", [4, 4, 100]))
    assert "rampup_batch_size" not in handed_over(run)["training"]
    assert changed(run)["training.rampup_batch_size"] == ([4, 4, 100], None)


@pytest.mark.usefixtures("trainer")
@pytest.mark.parametrize(
    ("loader", "columns"),
    [
        ({"column_names": ["input_ids", "loss_mask"]}, [("input_ids", (512,)), ("loss_mask", (512,))]),
        ({"config": {"create_attention_mask": True}}, [("attention_mask", (1, 512, 512))]),
        (
            {"config": {"create_compressed_eod_mask": True, "eod_pad_length": 16}},
            [("position_ids", (512,)), ("actual_seq_len", (16,))],
        ),
        ({"create_compressed_eod_mask": True}, [("actual_seq_len", (128,))]),
    ],
)
def test_samples_have_the_columns_that_the_data_set_would_have(
    loader: dict[str, Any], columns: list[tuple[str, tuple[int, ...]]]
) -> None:
    run = prepared(edited(QWEN, "train_dataset.dataloader", loader))
    assert job_of(run).length == 512
    assert job_of(run).columns[-len(columns) :] == tuple(Column(name, shape, "int32") for name, shape in columns)
    made = handed_over(run)["train_dataset"]["dataloader"]
    assert made["column_names"] == [column.name for column in job_of(run).columns]
    assert made["config"]["create_compressed_eod_mask"] == (columns[-1][0] == "actual_seq_len")


@pytest.mark.usefixtures("trainer")
@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("train_dataset.dataloader.column_names", ["pixels"], UnsupportedError),
        ("train_dataset.dataloader.column_names", "input_ids", ConfigError),
        ("train_dataset.dataloader", ["a", "b"], ConfigError),
        ("checkpoint", "none", ConfigError),
        ("run_mode", "predict", UnsupportedError),
    ],
)
def test_what_cannot_be_handed_over_is_refused(key: str, value: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        prepared(edited(QWEN, key, value))


@pytest.mark.usefixtures("trainer")
def test_lists_of_layers_are_written_for_those_that_are_left() -> None:
    config = edited(QWEN, "model.num_hidden_layers", 8)
    config["recompute"] = {"mode": "full", "full_recompute_layer": ["4-7"], "exclude_op": {"mlp": ["0", "5-6"]}}
    config["recompute_comm"] = {"enable": True, "select_module": {"mlp": ["0-3", 7]}}
    config["swap"] = {
        "enable": True,
        "layer_swap": [{"layers": ["1"]}],
        "op_swap": [{"op_name": "mlp", "layers": ["5"]}],
    }
    handed = handed_over(prepared(config, request=DryrunRequest(layers=4)))  # layers 0, 1, 4 and 5
    assert handed["model"]["num_hidden_layers"] == 4
    assert handed["recompute"]["full_recompute_layer"] == ["2-3"]
    assert handed["recompute"]["exclude_op"] == {"mlp": ["0", "3"]}
    assert handed["recompute_comm"]["select_module"] == {"mlp": ["0-1"]}
    assert handed["swap"]["layer_swap"] == [{"layers": ["1"]}]
    assert handed["swap"]["op_swap"] == [{"op_name": "mlp", "layers": ["3"]}]


@pytest.mark.usefixtures("trainer")
@pytest.mark.parametrize("name", ["num_layers", "n_layer"])
def test_the_config_keeps_its_own_name_for_the_number_of_layers(name: str) -> None:
    config = edited(QWEN, f"model.{name}", 4)
    del config["model"]["num_hidden_layers"]
    handed = handed_over(prepared(config, request=DryrunRequest(layers=2)))
    assert handed["model"][name] == 2
    assert "num_hidden_layers" not in handed["model"]


@pytest.mark.usefixtures("trainer")
@pytest.mark.parametrize(
    ("said", "pattern"),
    [
        ({"moe_layer_freq": [0, 1, 0, 1]}, [0, 1]),
        ({"moe_layer_freq": 2}, [1, 0]),
        ({"mlp_only_layers": [1, 3]}, [1, 0]),
    ],
)
def test_which_layers_have_experts_is_reported_for_every_one_that_is_left(
    said: dict[str, Any], pattern: list[int]
) -> None:
    config = edited(QWEN, "model", {**CASES["Qwen3-MoE"].config["model"], **said})
    handed = handed_over(prepared(config, request=DryrunRequest(layers=2)))["model"]
    assert handed["moe_layer_freq"] == pattern
    assert "mlp_only_layers" not in handed


@pytest.mark.usefixtures("trainer")
@pytest.mark.parametrize(
    ("key", "value"),
    [("optimizer.type", "Muon"), ("lora_config", {"target_modules": "linear"}), ("parallelism.cpu_offload", True)],
)
def test_it_may_do_what_the_reference_transformer_does_not(key: str, value: object) -> None:
    config = edited(QWEN, key, value)
    run = prepared(config)
    assert isinstance(run.job, PynativeJob)
    assert run.theory == {}
    with pytest.raises(UnsupportedError):
        prepared(config, request=DryrunRequest(reference=True))


def test_on_one_device_a_float32_weight_has_no_copy() -> None:
    """As in ``AdamW._init_main_params``: embedding and norms are float32 already."""
    config = edited(QWEN, "model.params_dtype", "bfloat16")
    theory = prepared(config, devices=1, request=DryrunRequest(reference=True)).theory
    model = config["model"]
    hidden, layers, head = model["hidden_size"], model["num_hidden_layers"], model["head_dim"]
    wide = model["vocab_size"] * hidden + layers * (2 * hidden + 2 * head) + hidden
    narrow = (theory["weights"] - 4 * wide) // 2
    assert theory["optimizer_state"] == 8 * wide + 12 * narrow


def test_projections_of_attention_are_float32_where_the_config_does_not_say() -> None:
    """The default is ``params_dtype`` of ``transformer_config.py`` and ``transformers/attention.py`` of 2.1."""
    model = QWEN["model"]
    heads, groups, head = model["num_attention_heads"], model["num_key_value_heads"], model["head_dim"]
    projections = model["num_hidden_layers"] * model["hidden_size"] * head * (2 * heads + 2 * groups)
    narrow, wide = (
        prepared(config, devices=1, request=DryrunRequest(reference=True)).theory["weights"]
        for config in (edited(QWEN, "model.params_dtype", "bfloat16"), QWEN)
    )
    assert wide - narrow == 2 * projections


FUZZED = edited(
    edited(edited(DEEPSEEK, "swap", {"enable": True, "layer_swap": [{"layers": ["0"]}]}), "model.moe_layer_freq", 1),
    "recompute_comm",
    {"enable": True, "select_module": {"mlp": ["0-1"]}},
)


@pytest.mark.slow
@given(st.sampled_from(list(paths(FUZZED))), VALUES)
def test_no_value_anywhere_makes_it_fail_in_another_way_than_it_says(
    path: tuple[str | int, ...], value: object
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "pynative_framework", lambda: Framework("mindformers.pynative", "MindFormers 2.0.0"))
        try:
            run = prepared(replaced(FUZZED, path, value), 8, DryrunRequest(layers=2))
        except MsTuneError:
            return
    assert run.layers == 2
    assert handed_over(run)
