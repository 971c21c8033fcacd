"""Memory of MindSpeed-MM jobs: parameters against published counts, peaks against those that its own tests recorded on NPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ms_tune.dialects.mindspeed_mm.model import _video_tokens
from ms_tune.units import MIB
from ms_tune.workflows.check.result import Overview
from ms_tune.workflows.check.run import check_job
from tests.files import read_data

CASES: dict[str, list[dict[str, Any]]] = read_data("multimodal.yaml")


def look(folder: Path, command: str, model: object, data: object = ()) -> Overview:
    """The screen of a script that starts a program with a model."""
    (folder / "model.json").write_text(json.dumps(model), "utf-8")
    (folder / "data.json").write_text(json.dumps({"dataset_param": data}), "utf-8")
    script = folder / "run.sh"
    script.write_text(f"torchrun {command} --mm-model ./model.json --mm-data ./data.json\n", "utf-8")
    return check_job(script)


@pytest.mark.parametrize("case", CASES["models"], ids=lambda case: case["name"])
def test_a_model_has_about_the_published_parameters(case: dict[str, Any], tmp_path: Path) -> None:
    one = "--nproc_per_node 1 pretrain_vlm.py --micro-batch-size 1 --global-batch-size 1 --seq-length 128 --bf16"
    estimate = look(tmp_path, one, case["model"]).estimate
    assert estimate is not None
    # 18 bytes of a trained parameter; projectors and embeddings of time and images are not counted.
    assert estimate.fullest.lasting_bytes / 18 == pytest.approx(case["published"], rel=0.085)


@pytest.mark.parametrize("case", CASES["jobs"], ids=lambda case: case["name"])
def test_a_measured_peak_is_in_the_range(case: dict[str, Any], tmp_path: Path) -> None:
    command = f"--nproc_per_node {case['processes']} {case['program']} {case['arguments']}"
    estimate = look(tmp_path, command, case["model"], case["data"]).estimate
    assert estimate is not None
    low, high = estimate.range_bytes
    assert low <= case["measured"] * MIB <= high


@pytest.mark.parametrize(
    ("frames", "sides", "tokens"),
    [
        (81, (720, 1280), 75_600),  # the two lengths of Wan 2.1's report
        (81, (480, 832), 32_760),
        (1, (480, 832), 1_560),  # an image
        (81, (480, 0), 75_600),  # unknown: the longest
        (0, (480, 832), 75_600),
    ],
)
def test_tokens_of_a_video(frames: int, sides: tuple[int, int], tokens: int) -> None:
    sizes = {"num_frames": frames, "max_height": sides[0], "max_width": sides[1]}
    for patch in ([1, 2, 2], 2):
        assert _video_tokens({"patch_size": patch}, sizes) == tokens


@pytest.mark.parametrize(
    ("command", "model", "reason"),
    [
        ("pretrain_vlm.py", {"text_encoder": {}}, "check.multimodal.no-sizes"),
        ("pretrain_sora.py", {"predictor": {"model_id": "mine", "num_layers": 4}}, "check.multimodal.no-sizes"),
        ("pretrain_vlm.py", {"init_from_hf_path": "mine", "text_decoder": {"num_layers": 2}}, "check.script.no-size"),
    ],
)
def test_sizes_that_are_nowhere_are_the_reason(command: str, model: object, reason: str, tmp_path: Path) -> None:
    screen = look(tmp_path, f"--nproc_per_node 8 {command} --micro-batch-size 1", model)
    assert screen.no_estimate_because is not None
    assert (screen.estimate, screen.no_estimate_because.id) == (None, reason)
    assert screen.no_estimate_hint is not None


YAML = """
parallel: {fsdp_plan: {param_dtype: bf16}, fully_shard_parallel_size: auto}
data: {dataset_param: {basic_parameters: {cutoff_len: 1024}}}
model: {model_id: qwen3_vl, model_name_or_path: NAME, freeze: [model.visual]}
features: {recompute: true}
training: {micro_batch_size: 1, gradient_accumulation_steps: 1}
"""


@pytest.mark.parametrize(
    ("name", "billions"),
    [("/data/Qwen3-VL-8B-Instruct", 8.19), ("ckpt/Qwen3-VL-30B-A3B-Instruct", 30.5), ("./mine-19b-dev", 19.0)],
)
def test_a_yaml_takes_the_sizes_of_the_public_model_that_it_names(name: str, billions: float, tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text(YAML.replace("NAME", name), "utf-8")
    estimate = check_job(tmp_path / "train.yaml").estimate
    assert estimate is not None
    # 8 ranks shard weights, gradients and moments of two bytes each; the vision encoder adds its frozen weights.
    assert estimate.fullest.lasting_bytes == pytest.approx(billions * 1e9 * (8 / 8), rel=0.1)


def test_a_yaml_that_names_no_public_model_says_so(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text(YAML.replace("NAME", "ckpt/Qwen35-xxB"), "utf-8")
    screen = check_job(tmp_path / "train.yaml")
    assert screen.no_estimate_because is not None
    assert screen.no_estimate_because.id == "check.multimodal.no-model"


FSDP2 = (
    "model: {trust_remote_code: false}\ndata: {cutoff_len: 4096}\nparallel: {recompute: true}\ntraining: {stage: pt}\n"
)


def test_arguments_of_mindspeed_llms_fsdp2_trainer_override_its_yaml(tmp_path: Path) -> None:
    (tmp_path / "mindspeed_llm").mkdir()
    (tmp_path / "mindspeed_llm" / "__init__.py").touch()
    (tmp_path / "train.yaml").write_text(FSDP2, "utf-8")
    script = tmp_path / "run.sh"
    options = "--model.model_name_or_path ./Qwen3-14B --training.per_device_train_batch_size 1"
    found = []
    for ranks in (8, 16):
        script.write_text(f"torchrun --nproc_per_node {ranks} train_fsdp2.py ./train.yaml {options}\n", "utf-8")
        screen = check_job(script)
        assert screen.estimate is not None
        assert screen.sizes is not None
        assert (screen.sizes.model, screen.sizes.key) == ("Qwen3-14B", "./Qwen3-14B")
        found.append(screen.estimate.fullest.lasting_bytes)
    # 14.77 billion parameters, weights, gradients and moments of two bytes each; more ranks share them.
    assert found == [pytest.approx(14.77e9 * 8 / ranks, rel=0.02) for ranks in (8, 16)]


def test_layers_of_a_spec_of_its_own_have_a_wide_range(tmp_path: Path) -> None:
    sizes = "--num-layers 4 --hidden-size 1024 --num-attention-heads 8 --seq-length 1024 --vocab-size 32000"
    script, widths = tmp_path / "pretrain.sh", []
    for spec in ("", "--spec my.models.spec layer_spec"):
        script.write_text(
            f"torchrun --nproc_per_node 8 pretrain_gpt.py {sizes} {spec} --micro-batch-size 1 --bf16\n", "utf-8"
        )
        estimate = check_job(script).estimate
        assert estimate is not None
        widths.append(estimate.ratios)
    assert widths[0][1] < 2 < widths[1][1]


@pytest.mark.parametrize("config", ["$1", "configs/not-here.yaml"])
def test_a_trainer_whose_yaml_is_elsewhere(config: str, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"torchrun --nproc_per_node 8 mindspeed_mm/fsdp/train/trainer.py {config}\n", "utf-8")
    screen = check_job(script)
    assert screen.no_estimate_because is not None
    assert screen.no_estimate_because.id == "check.multimodal.no-yaml"
