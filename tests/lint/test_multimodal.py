"""Test MindSpeed-MM: its YAML, ``tools.json`` and launch scripts, and parts that are not checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ms_tune.enums import Dialect
from ms_tune.errors import MsTuneError
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.lint.result import FileReport, LintRequest
from ms_tune.lint.runner import LintRun, LintTarget, check_file
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language

CHECKS = built_in(Dialect.MINDSPEED_MM)
# The vendor's own examples are not part of this project.
FIXTURES = next(
    (
        folder
        for folder in (one / "shared/fixtures/torch_npu/mindspeed-mm" for one in Path(__file__).parents)
        if folder.is_dir()
    ),
    Path("nowhere"),
)
HEAD = "parallel: {{fully_shard_parallel_size: auto{parallel}}}\ntraining: {{micro_batch_size: 1{training}}}\n{more}"


def names(text: str, version: str = "26.1") -> list[str]:
    found = lint(parse_source(text, Path("a.yaml")), Dialect.MINDSPEED_MM, CHECKS, version)
    return [one.name for one in found]


def of(parallel: str = "", training: str = "", more: str = "", version: str = "26.1") -> list[str]:
    return names(HEAD.format(parallel=parallel, training=training, more=more), version)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"parallel": ", recompute: true"}, ["feature-in-other-section"]),
        ({"parallel": ", recompute: true", "version": "26.0"}, []),
        ({"more": "model: {loss_cfg: {loss_type: raw}}"}, ["feature-in-other-section"]),
        ({"more": "model: {anything: {of: the model}}"}, []),
        ({"parallel": ", pregather: true"}, ["pregather-outside-its-plan"]),
        ({"parallel": ", fsdp_plan: {aply_modules: []}"}, ["key-that-no-module-reads"]),
        ({"training": ", scheduler: x"}, []),  # declared nowhere and read all the same
        ({"training": ", load_format: hf"}, []),  # of a release that is not out yet
        ({"training": ", optimizer: adam"}, ["choice-that-is-refused"]),
        ({"training": ", train_iters: '12'"}, []),
        ({"training": ", train_iters: twelve"}, ["type-that-is-refused"]),
        ({"training": ", lr: 1e-6"}, []),  # YAML reads a text, and pydantic a number
        ({"training": ", lr: 1e-6, lr_min: 1e-5"}, ["number-that-is-refused"]),
        ({"parallel": ", ulysses_parallel_size: 4, tensor_parallel_size: 1"}, []),
        ({"parallel": ", tensor_parallel_size: 2"}, ["number-that-is-refused"]),
        ({"more": "tools: {memory_profile: {enable: false, start_step: 3, end_step: 1}}"}, []),
        ({"more": "tools: {memory_profile: {enable: true, start_step: 3, end_step: 1}}"}, ["window-without-a-step"]),
    ],
)
def test_settings(arguments: dict[str, str], expected: list[str]) -> None:
    assert of(**arguments) == expected


@pytest.mark.parametrize(
    ("parallel", "words"),
    [
        (
            ", fsdp_plan: {aply_modules: []}",
            "no module reads 'aply_modules' in parallel.fsdp_plan; did you mean 'apply_modules'?",
        ),
        (", fsdp_plan: {zzz: []}", "no module reads 'zzz' in parallel.fsdp_plan"),
        (
            ", context_parallel_size: 2",
            "no module reads 'context_parallel_size'; ring_attention_size and ulysses_parallel_size split the sequence",
        ),
    ],
)
def test_a_key_that_no_module_reads_is_corrected_if_one_is_near(parallel: str, words: str) -> None:
    text = HEAD.format(parallel=parallel, training="", more="")
    found = lint(parse_source(text, Path("a.yaml")), Dialect.MINDSPEED_MM, CHECKS, "26.1")
    assert [one.message.say(Language.EN) for one in found if one.id == "MST470"] == [words]


def test_a_file_is_fixed_as_it_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        HEAD.format(parallel=", recompute: true", training="", more="features: {enable_chunk_loss: false}"), "utf-8"
    )
    reports = [check_file(LintTarget(file, named=True), LintRun(LintRequest(fix=fix))) for fix in (None, "safe")]
    assert [[one.name for one in report.findings] for report in reports if isinstance(report, FileReport)] == [
        ["feature-in-other-section"]
    ] * 2


def test_a_trainer_whose_yaml_is_an_argument_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("CONFIG=$1\ntorchrun mindspeed_mm/fsdp/train/trainer.py $CONFIG\n", "utf-8")
    report = check_file(LintTarget(script, named=True), LintRun(LintRequest()))
    assert isinstance(report, FileReport)
    assert (report.release.framework, report.findings) == ("MindSpeed-MM", ())


def test_tools() -> None:
    tools = {"profile": {"enable": False, "profile_type": "static", "static_param": {"analyse_flag": True}}}
    assert names(json.dumps({**tools, "memory_profile": {"enable": False}})) == ["tools-without-a-key"]
    assert names(json.dumps({**tools, "memory_profile": {"enable": False, "mem_info": False}})) == []
    assert names(json.dumps({"profile": {"profile_type": "static", "static_param": {}}})) == ["tools-without-a-key"]


@pytest.mark.parametrize(
    ("reader", "expected"),
    [("self.mem_info = config.mem_info", ["tools-without-a-key"]), ("self.enable = config.enable", [])],
)
@pytest.mark.parametrize("place", ["mindspeed_mm/tools/tools.json", "examples/tools.json"])
def test_the_repository_around_tools_says_what_is_read(
    reader: str, expected: list[str], place: str, tmp_path: Path
) -> None:
    own = tmp_path / "mindspeed_mm" / "tools"
    own.mkdir(parents=True)
    (tmp_path / "examples").mkdir()
    (own / "mem_profiler.py").write_text(f"def reset(self, config):\n    {reader}\n", "utf-8")
    for file in (own / "tools.json", tmp_path / place):
        file.write_text('{"profile": {"profile_type": "static"}, "memory_profile": {"enable": false}}', "utf-8")
    assert lint_names(tmp_path / place) == expected


def lint_names(path: Path) -> list[str]:
    report = check_file(LintTarget(path, named=True), LintRun(LintRequest(settings=False)))
    assert isinstance(report, FileReport), report
    return [one.name for one in report.findings]


SCRIPT = """
NPUS=8
TP={tp}
PP={pp}
MBS=1
GRAD_ACC_STEP={steps}
{lines}
{starter} pretrain_vlm.py --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --micro-batch-size $MBS \\
  --global-batch-size {batch} --mm-model ./model.json {options}
"""
MODEL = {
    "text_decoder": {"num_attention_heads": 16, "pipeline_num_layers": [4, 4]},
    "image_encoder": {"vision_projector": {"num_attention_heads": 1}},
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"pp": "4", "steps": "4"}, ["layers-for-other-stages"]),
        ({"steps": "3"}, ["accumulation-without-effect"]),
        ({"batch": "6", "steps": "x"}, ["batch-not-a-multiple"]),
        ({"tp": "3", "steps": "x"}, ["heads-beyond-ranks", "processes-not-a-multiple"]),
        ({"batch": "$(nproc)"}, []),
        ({"options": "--sequence-parallel"}, ["sequence-parallel-switched-off"]),
        ({"options": "--seed 1 --seed 2"}, ["option-given-twice"]),
        ({"options": "--mm-data ./data.json"}, ["file-that-is-not-there"]),
        ({"options": "--mm-data your_data.json"}, []),
        ({"options": "--use-torch-fsdp2 --fp16", "pp": "1", "steps": "1"}, ["option-beside-fsdp2"]),
    ],
)
def test_scripts(tmp_path: Path, change: dict[str, str], expected: list[str]) -> None:
    parts = {"tp": "1", "pp": "2", "steps": "2", "batch": "8", "options": "", "lines": ""}
    text = SCRIPT.format(**{**parts, "starter": "torchrun --nproc_per_node $NPUS", **change})
    (tmp_path / "run.sh").write_text(text, encoding="utf-8")
    (tmp_path / "model.json").write_text(json.dumps(MODEL), encoding="utf-8")
    assert sorted(set(lint_names(tmp_path / "run.sh"))) == expected


@pytest.mark.parametrize(
    ("parallel", "expected"),
    [
        ("fully_shard_parallel_size: auto", []),
        ("fully_shard_parallel_size: 4", []),
        ("fully_shard_parallel_size: 3", ["config-for-other-processes"]),
        ("fully_shard_parallel_size: auto, ring_attention_size: 3", ["config-for-other-processes"]),
    ],
)
def test_sizes_of_a_config_and_processes_of_its_script(tmp_path: Path, parallel: str, expected: list[str]) -> None:
    (tmp_path / "config.yaml").write_text(f"parallel: {{{parallel}}}\ntraining: {{micro_batch_size: 1}}\n", "utf-8")
    command = "torchrun --nproc_per_node 8 mindspeed_mm/fsdp/train/trainer.py config.yaml\n"
    (tmp_path / "run.sh").write_text(command, "utf-8")
    assert lint_names(tmp_path / "run.sh") == expected


@pytest.mark.parametrize(
    ("model", "fsdp2", "options", "expected"),
    [
        ({"ae": {"model_id": "wan_video_vae", "enable_tiling": True}}, "", "", ["tiling-without-its-sizes"]),
        ({"ae": {"model_id": "wan_video_vae", "enable_tiling": False}}, "", "", []),
        ({"ae": {"model_id": "hunyuanvideo_15_vae", "enable_tiling": True}}, "", "", []),
        ({"encoder_offload_interval": 8}, "", "--save o --save-interval 100", ["checkpoint-within-an-interval"]),
        ({"encoder_offload_interval": 8}, "", "--save o --save-interval 80", []),
        ({"encoder_offload_interval": 8}, "", "--save o --save-interval $N", []),
        ({}, "offload_to_cpu: True", "--distributed-backend nccl", ["offload-without-collectives-of-the-host"]),
        ({}, "offload_to_cpu: True", "--distributed-backend npu:hccl,cpu:gloo", []),
        ({}, "offload_to_cpu: True", "--distributed-backend $BACKEND", []),
        ({}, "offload_to_cpu: True", "$OTHERS", []),
        ({}, "recompute_modules:\n  - a.{*}", "--recompute-granularity full", ["recompute-in-two-places"]),
        ({}, "recompute_modules: []", "--recompute-granularity full", []),
    ],
)
def test_what_two_files_say_together(
    tmp_path: Path, model: dict[str, Any], fsdp2: str, options: str, expected: list[str]
) -> None:
    if fsdp2:
        options += " --use-torch-fsdp2 --fsdp2-config-path fsdp2.yaml"
        (tmp_path / "fsdp2.yaml").write_text(f"sharding_size: auto\n{fsdp2}\n", encoding="utf-8")
    (tmp_path / "model.json").write_text(json.dumps(model), encoding="utf-8")
    command = f"torchrun --nproc_per_node 8 pretrain_sora.py --mm-model model.json {options}\n"
    (tmp_path / "run.sh").write_text(command, encoding="utf-8")
    assert sorted(set(lint_names(tmp_path / "run.sh"))) == expected


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the examples of MindSpeed-MM are not at hand")
def test_the_examples() -> None:
    expected = {
        "mimov2_5/mimov2_5_config.yaml": {"key-that-no-module-reads"},  # its features are where 26.0 reads them
        "qwen3tts/qwen3tts_config.yaml": {"pregather-outside-its-plan"},
    }
    for path, wanted in expected.items():
        assert set(lint_names(FIXTURES / "examples" / path)) == wanted
    assert lint_names(FIXTURES / "mindspeed_mm" / "tools" / "tools.json") == []
    broken = check_file(
        LintTarget(FIXTURES / "examples" / "moss_tts" / "moss_tts_delay_config.yaml", named=False), LintRun()
    )
    assert isinstance(broken, MsTuneError)
