"""Test ``ms-tune normalize-recompute pretrain_x.sh`` from its arguments to its output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune.cli.main import main

SCRIPT = """
PP=2
MOE="--num-experts 8 --first-k-dense-replace 1"
RECOMPUTE="--recompute-granularity full --recompute-method block --recompute-num-layers 2"
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --pipeline-model-parallel-size $PP --noop-layers 7 $MOE \\
    $RECOMPUTE --recompute-norm
"""
TWO = """
msrun --worker_num 2 pretrain_gpt.py --num-layers 4 --pipeline-model-parallel-size 2 --recompute-num-layers $1
msrun --worker_num 2 posttrain_gpt.py --num-layers 4 --pipeline-model-parallel-size 2
"""


def written(folder: Path, text: str) -> str:
    path = folder / "pretrain_x.sh"
    path.write_text(text, "utf-8")
    return str(path)


def run(*words: str) -> int:
    return main(["normalize-recompute", *words])


def test_the_table_of_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(written(tmp_path, SCRIPT)) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "8 layers, 2 stages, 1 chunk dialect megatron, MindSpeed-LLM 2.3"
    assert "0 0 0 1 dense full" in lines
    assert "0 0 1 1 experts full" in lines
    assert "0 0 2-3 2 experts select a b" in lines
    assert "1 0 7 1 noop -" in lines
    assert "a input_layernorm" in lines


def test_json_and_a_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--framework-version", "26.1", written(tmp_path, SCRIPT)) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["program"], job["line"], job["not_evaluable"]) == ("pretrain_gpt.py", 5, None)
    plan = job["plan"]
    assert (plan["dialect"], plan["framework_version"], plan["placement"]) == ("megatron", "26.1", [[4, 4]])
    assert [layer["kind"] for layer in plan["layers"]] == ["dense", *["experts"] * 6, "noop"]
    assert plan["formative"]["full"] == [0, 1, 4, 5]


def test_stage_and_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, SCRIPT)
    assert run("--layer", "7", path) == 0
    assert "noop" in capsys.readouterr().out.partition("Recomputation per layer")[2]
    assert run("--stage", "2", path) == 2
    assert "stage 2" in capsys.readouterr().err
    assert run("--layer", "8", path) == 2


def test_what_is_not_known_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(written(tmp_path, TWO)) == 2
    out = capsys.readouterr().out
    assert "line 2: pretrain_gpt.py\ncannot evaluate 1, on which --recompute-num-layers depends" in out
    assert "line 3: posttrain_gpt.py\n4 layers, 2 stages" in out
    assert run("--json", written(tmp_path, TWO)) == 2
    first, second = json.loads(capsys.readouterr().out)["jobs"]
    assert first["not_evaluable"] == {"argument": "--recompute-num-layers", "unknown": "1"}
    assert first["plan"] is None
    assert second["plan"]["placement"] == [[2, 2]]


def test_a_refusal_has_the_frameworks_words_the_file_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(written(tmp_path, SCRIPT.replace("--recompute-num-layers 2", ""))) == 1
    out = capsys.readouterr().out
    assert "recompute_num_layers must be between 1 and num_layers_per_pipeline_rank: 4" in out
    assert "add --recompute-num-layers; see megatron/core/transformer/transformer_config.py" in out
    assert "help: change to (- means: remove): --recompute-num-layers 1" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--as-log",), "does not log"),
        (("--against", "log"), "does not log"),
        (("--layers", "4"), "--layers cannot be used with launch scripts"),
        (("--framework-version", "1.0"), "1.0"),
        (("--framework-version", "2.0"), "2.2, 2.3, 26.0, 26.1"),
    ],
)
def test_what_does_not_work(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words, written(tmp_path, SCRIPT)) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo hello\n", "does not start a MindSpeed-LLM program"),
        ("python pretrain_gpt.py --hidden-size 4\n", "--num-layers is missing"),
        ("python pretrain_gpt.py --num-layers 1000000000000000000\n", "integer from 1 to 10000"),
        ("python pretrain_gpt.py --num-layers 4 --num-virtual-stages-per-pipeline-rank 99999\n", "integer"),
        ("python pretrain_gpt.py --num-layers 4 --spec my.own layer_spec\n", "--spec my.own layer_spec"),
        ("python pretrain_gpt.py --num-layers 4 --moe-fb-overlap\n", "--moe-fb-overlap"),
        (
            "python pretrain_gpt.py --num-layers 4 --moe-layer-freq '[0]*2+[1]*2'\n",
            "cannot determine the effect of --moe-layer-freq",
        ),
    ],
)
def test_what_cannot_be_determined(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(written(tmp_path, text)) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--write", "--diff"])
def test_lint_is_named_for_edits(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(option, written(tmp_path, SCRIPT)) == 2
    error = capsys.readouterr().err
    assert f"{option} cannot be used with launch scripts" in error
    assert "ms-tune lint --fix FILE" in error


def test_what_the_parser_refuses_has_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, SCRIPT.replace("full --", "ful --").replace("--recompute-norm", "--recompute-nrm"))
    assert run("--json", path) == 1
    plan = json.loads(capsys.readouterr().out)["jobs"][0]["plan"]
    assert plan["layers"] == []
    assert [problem["id"] for problem in plan["problems"]] == ["parser-rejected"] * 2


def test_what_nobody_sets_is_left_out_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = SCRIPT.replace("pretrain_gpt.py", "pretrain_gpt.py $MEM_ARGS")
    assert script != SCRIPT
    assert run(written(tmp_path, SCRIPT)) == 0
    plain = capsys.readouterr().out
    run(written(tmp_path, script))
    captured = capsys.readouterr()
    assert "does not set $MEM_ARGS" in captured.out + captured.err
    assert plain.partition("Fully recomputed layers")[2].rstrip() in captured.out
    assert run(written(tmp_path, script.replace("$MEM_ARGS", "$(cat more)"))) == 2
