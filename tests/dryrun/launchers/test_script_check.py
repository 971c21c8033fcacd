"""Test ``--check`` of a script: it runs up to its launchers, with frameworks that are only folders."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ms_tune.cli.main import main
from ms_tune.dryrun import command as room
from ms_tune.dryrun import machine as check
from ms_tune.dryrun.cann_sim.environment import Backend, Cann, MindSpore
from tests.dryrun.test_stack import PARTS, llm, package

ARGUMENTS = "--pipeline-model-parallel-size 2 --num-layers 4 --micro-batch-size 1 --padded-vocab-size 100"
PROGRAM = (
    "import megatron, sys\nopen('imported', 'w').write(sys.argv[1])\nif __name__ == '__main__': open('trained', 'w')\n"
)
Checked = tuple[int, dict[str, Any], str]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG", "COLUMNS", "RANK_ID", "RANK_SIZE", "MS_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for module in (room, check):
        monkeypatch.setattr(module, "find_mindspore", lambda *_: MindSpore("2.9.0", tmp_path))
    monkeypatch.setattr(room, "prepare_cann", lambda *_: Cann(Backend.STAND_IN, tmp_path / "cann"))
    monkeypatch.setattr(check, "find_real_cann", lambda: None)
    monkeypatch.setattr(check, "check_supported", lambda _: None)
    Path("pretrain_gpt.py").write_text(PROGRAM, encoding="utf-8")
    for name in PARTS:
        if name == "mindspeed_llm":
            llm(tmp_path / "stack", "2.3")
        else:
            package(tmp_path / "stack", name, "2.9.0" if name == "mindspore" else None)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "stack"), *sys.path[:1]]))


@pytest.fixture
def checked(capsys: pytest.CaptureFixture[str]) -> Callable[..., Checked]:
    def run(text: str, *options: str) -> Checked:
        Path("pretrain.sh").write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        code = main(["dryrun", "--check", "--json", *options, "pretrain.sh"])
        output = capsys.readouterr()
        return code, json.loads(output.out).get("script", {}) if output.out else {}, output.err

    return run


LINE = f"msrun --worker_num 4 pretrain_gpt.py {ARGUMENTS} --tokenizer-name-or-path my own"


@pytest.mark.slow
def test_what_a_script_would_find_is_reported_and_nothing_is_trained_or_kept(
    checked: Callable[..., Checked], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, script, err = checked(LINE)
    assert (code, script["ready"], script["problems"]) == (0, True, []), err
    (job,) = script["jobs"]
    assert (job["launcher"], job["devices"], job["missing"]) == ("msrun", 4, [])
    found = {part["name"]: (part["folder"], part["release"]) for part in job["parts"]}
    assert found["MindSpeed-LLM"] == (str(tmp_path / "stack" / "mindspeed_llm"), "v2.3.0")
    assert found["MindSpore"] == (str(tmp_path / "stack" / "mindspore"), "2.9.0")
    assert job["documented"]["release"] == "r0.5.0"
    assert job["made_up"] == {"--tokenizer-name-or-path": "my own"}
    assert Path("imported").read_text("utf-8").startswith("--pipeline-model-parallel-size")
    assert sorted(path.name for path in Path().iterdir()) == ["imported", "pretrain.sh", "pretrain_gpt.py"]
    assert main(["dryrun", "--check", "pretrain.sh"]) == 0
    out = capsys.readouterr().out
    assert "MindSpeed-LLM: v2.3.0 (by the arguments that it defines), " in out
    assert "--tokenizer-name-or-path my own: replaced by generated content" in out
    assert "everything the programs import is available; nothing was trained" in out


@pytest.mark.slow
def test_what_is_missing_comes_with_what_the_documentation_says(
    checked: Callable[..., Checked], tmp_path: Path
) -> None:
    (tmp_path / "stack" / "msadapter").rename(tmp_path / "elsewhere")
    (tmp_path / "stack" / "megatron").rename(tmp_path / "elsewhere too")
    code, script, _ = checked(LINE)
    assert code == 2
    reported = [one["problem"] for one in script["problems"]]
    assert reported[0] == "not found: MSAdapter, Megatron-LM"
    assert script["problems"][0]["hint"].startswith("MindSpeed-Core-MS r0.5.0 is documented with MindSpeed-LLM 2.3.0")
    assert "ModuleNotFoundError: No module named 'megatron'" in reported[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher", ["torchrun --nproc_per_node 4 -m pretrain_gpt", "msrun --worker_num 4 python pretrain_gpt.py"]
)
def test_programs_that_are_modules_or_after_a_python(checked: Callable[..., Checked], launcher: str) -> None:
    code, _, err = checked(f"{launcher} {ARGUMENTS}")
    assert (code, Path("imported").is_file(), Path("trained").exists()) == (0, True, False), err


@pytest.mark.slow
def test_a_mindspore_that_the_adapter_refuses_is_reported_before_a_run(
    checked: Callable[..., Checked], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = tmp_path / "stack" / "msadapter-0.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Requires-Dist: mindspore>=2.10\n", encoding="utf-8")
    code, script, _ = checked(LINE)
    problem = "MSAdapter 0.9 requires MindSpore >=2.10, found 2.9.0"
    assert (code, [one["problem"] for one in script["problems"]]) == (2, [problem])
    assert main(["dryrun", "pretrain.sh"]) == 2
    assert problem in capsys.readouterr().err
    assert not Path("trained").exists()


def test_a_script_without_a_launcher(checked: Callable[..., Checked]) -> None:
    assert [one["problem"] for one in checked("true")[1]["problems"]] == [
        "the script ended without calling a launcher, and none of its programs imported MindSpore"
    ]
    Path("train.py").write_text("import mindspore\nopen('trained', 'w')\n", encoding="utf-8")
    (reported,) = checked("python train.py")[1]["problems"]
    assert reported["problem"].startswith("the script calls no launcher; its program reached the import of MindSpore")
    assert not Path("trained").exists()


def test_a_script_that_fails_before_its_launcher(checked: Callable[..., Checked]) -> None:
    code, script, _ = checked("set -e\nsource /no/such/file\n" + LINE)
    assert code == 2
    assert "no such file" in script["problems"][0]["problem"].lower()
