"""Test files of other programs, which are named and not checked; mostly unknown files are never fixed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from tests.source.test_recognise import FOREIGN

TORCHRUN = """
export ASCEND_LAUNCH_BLOCKING=1
TP=3
torchrun --nproc_per_node 8 pretrain_llava.py --tensor-model-parallel-size $TP --use-torch-fsdp2
"""
VERL = FOREIGN["verl"]


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_foreign_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "a.yaml", VERL)
    assert main(["lint", "--no-config", "--lang", "en", str(file)]) == 2
    shown = capsys.readouterr()
    assert "not checked: this is a verl config" in shown.err
    assert "MST" not in shown.out + shown.err
    assert main(["lint", "--no-config", "--lang", "zh", str(file)]) == 2
    assert "这是 verl 的配置：不做检查" in capsys.readouterr().err


def test_in_a_folder_foreign_files_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in FOREIGN.items():
        if name not in ("mindspeed-mm", "hyper-parallel"):  # which have checks of their own
            written(tmp_path, f"{name}.yaml", text)
    written(tmp_path, "start.sh", TORCHRUN)
    written(tmp_path, "train.py", "import torch\nfor x in range(3):\n    print(torch.ones(x).sum().item())\n")
    written(tmp_path, "ms-tune.toml", 'dialect = "mindformers"\n')  # it sets the dialect of configs, not of all files
    assert main(["lint", "--verbose", "--lang", "en", str(tmp_path)]) == 2  # nothing was checked
    shown = capsys.readouterr()
    assert "MST" not in shown.out + shown.err
    assert "not checked: this is a Kubernetes manifest" in shown.err
    assert "not checked: this script starts PyTorch programs" in shown.err


def test_dialect_overrules_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "a.yaml", VERL)
    assert main(["lint", "--no-config", "--lang", "en", "--json", "--dialect", "mindformers", str(file)]) == 0
    shown = capsys.readouterr()
    assert "this is a verl config; checked as 'mindformers' because of --dialect" in shown.err
    assert json.loads(shown.out)["findings"]


@pytest.mark.parametrize("how", ["--fix", "--fix=unsafe"])
@pytest.mark.parametrize("name", ["verl", "mindspeed-mm"])
def test_what_is_mostly_unknown_is_never_fixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, how: str
) -> None:
    dialect = "mindformers-pynative" if name == "mindspeed-mm" else "mindformers"
    file = written(tmp_path, "a.yaml", FOREIGN[name])
    main(["lint", "--no-config", "--lang", "en", "--dialect", dialect, how, str(file)])
    assert file.read_text(encoding="utf-8") == FOREIGN[name]
    assert f"not fixed because most of its keys are unknown to '{dialect}'" in capsys.readouterr().err


def test_of_a_part_of_a_config_nothing_is_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "a.yaml", "trainer:\n  model_name: llama2_7b\n")
    assert main(["lint", "--no-config", "--lang", "en", "--json", str(file)]) == 0
    shown = capsys.readouterr()
    assert "only part of a 'mindformers' config" in shown.err
    assert json.loads(shown.out)["findings"] == []
    whole = written(tmp_path, "b.yaml", "trainer:\n  model_name: llama2_7b\nrunner_config: {epochs: 1}\n")
    assert main(["lint", "--no-config", "--lang", "en", "--json", str(whole)]) == 1
    assert {one["name"] for one in json.loads(capsys.readouterr().out)["findings"]} == {"missing-section-key"}


@pytest.mark.parametrize(
    "start",
    [
        "torchrun --nproc_per_node 8 train.py",
        "python -m torch.distributed.launch train.py",
        "export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True\npython train.py",
        "deepspeed train.py",
        "accelerate launch train.py",
    ],
)
def test_scripts_of_pytorch_get_no_advice_for_mindspore(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], start: str
) -> None:
    file = written(tmp_path, "a.sh", f"export ASCEND_LAUNCH_BLOCKING=1\n{start}\n")
    assert main(["lint", "--no-config", "--lang", "en", str(file)]) == 2
    assert "not checked: this script starts PyTorch programs" in capsys.readouterr().err
    ours = written(
        tmp_path, "b.sh", f"# of MindSpore\nexport ASCEND_LAUNCH_BLOCKING=1 MS_SIMULATION_LEVEL=0\n{start}\n"
    )
    assert main(["lint", "--no-config", "--lang", "en", "--json", str(ours)]) in (0, 1)
    assert "MST814" in {one["id"] for one in json.loads(capsys.readouterr().out)["findings"]}
    (tmp_path / "mindspeed_llm").mkdir()  # a script of a supported framework is not foreign, whatever it starts
    written(tmp_path / "mindspeed_llm", "__init__.py", "")
    assert main(["lint", "--no-config", "--lang", "en", str(file)]) == 0


def test_megatron_programs_of_pytorch_are_checked_for_their_arguments_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "export ASCEND_LAUNCH_BLOCKING=1\ntorchrun --nproc_per_node 8 pretrain_gpt.py --no-such-option 1\n"
    file = written(tmp_path, "pretrain.sh", text)
    assert main(["lint", "--no-config", "--lang", "en", "--json", str(file)]) == 1
    found = {one["id"] for one in json.loads(capsys.readouterr().out)["findings"]}
    assert "MST814" not in found
    assert found


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("torchrun pretrain_gpt.py --num-layers 4 --step-batch-size-schedule 1", False),
        ("torchrun pretrain_gpt.py --num-layers 4 --transformer-impl transformer_engine --quick-geglu", False),
        ("export NCCL_DEBUG=INFO\ntorchrun pretrain_gpt.py --num-layerz 4", False),
        ("torchrun pretrain_gpt.py --num-layerz 4", True),  # misspelt, and nothing shows its program
        ("torchrun pretrain_gpt.py --use-fused-rmsnorm --step-batch-size-schedule 1", True),  # MindSpeed-LLM's
        ("msrun pretrain_gpt.py --step-batch-size-schedule 1", True),
        ("torchrun pretrain_gpt.py --moe-model-type megatron_moe", False),  # MindSpeed's, without MindSpeed-LLM
        ("torchrun pretrain_gpt.py --moe-model-type megatron_moe --prompt-type qwen", True),
        ("cd MindSpeed-LLM\ntorchrun pretrain_gpt.py --step-batch-size-schedule 1", True),
    ],
)
def test_programs_of_megatron_alone_are_not_checked_by_mindspeeds_parser(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, *, ours: bool
) -> None:
    file = written(tmp_path, "train.sh", f"{text}\n")
    assert main(["lint", "--no-config", "--lang", "en", "--json", str(file)]) in ((1,) if ours else (0, 2))
    found = {one["id"] for one in json.loads(capsys.readouterr().out)["findings"]}
    assert ("MST150" in found) == ours


def test_a_script_is_read_for_the_release_that_takes_its_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "torchrun --nproc_per_node 8 pretrain_gpt.py --use-fused-lightning-indexer\n"
    file = str(written(tmp_path, "train.sh", text))
    main(["lint", "--no-config", "--lang", "en", file])
    shown, notes = capsys.readouterr()
    assert "MST150" not in shown
    assert "MindSpeed-LLM 26.1" in shown
    assert "read for MindSpeed-LLM 26.1, which accepts more of its arguments than 2.3 does" in shown + notes
    main(["lint", "--no-config", "--lang", "en", "--framework-version", "2.3", file])
    shown, notes = capsys.readouterr()
    assert "MindSpeed-LLM 2.3 has no --use-fused-lightning-indexer; these releases have it: 26.0, 26.1" in shown
    assert "read for" not in shown + notes
