"""Test ``ms-tune normalize-recompute`` from its arguments to its output."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from ms_tune.cli.main import main

GUIDE = r"""
parallel:
  pipeline_config: {pipeline_interleave: True, pipeline_scheduler: 1f1b}
parallel_config:
  pipeline_stage: 5
model:
  model_config:
    num_layers: 48
    pp_interleave_num: 2
    offset: [[0,1,1,1,1],[1,1,1,1,0]]
recompute_config:
  recompute: [[2,1,0,0,0],[1,0,0,0,0]]
  select_recompute:
    'feed_forward\.w1\.activation\.silu': True
    'feed_forward\.mul': True
    'feed_forward\.w1\.matmul': [[1,0,0,0,0],[2,1,0,0,0]]
    'feed_forward\.w3\.matmul': [2,1,0,0,0]
  select_comm_recompute: ['ffn_norm\.norm','attention_norm\.norm']
"""
FLAT = """
use_legacy: {legacy}
parallel_config: {{pipeline_stage: {stages}}}
model: {{model_config: {{num_hidden_layers: {layers}, offset: {offset}}}}}
recompute_config: {{recompute: {recompute}}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def flat(
    *, stages: object = 4, layers: object = 8, offset: object = 0, recompute: object = False, legacy: object = True
) -> str:
    return FLAT.format(stages=stages, layers=layers, offset=offset, recompute=recompute, legacy=legacy)


def as_json(config: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    config.write_text(text)
    code = main(["normalize-recompute", "--json", str(config)])
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, shown


def test_as_log(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(GUIDE)
    assert main(["normalize-recompute", "--as-log", str(config)]) == 0
    captured = capsys.readouterr()
    assert "are shown as written" in captured.err  # the model is not named
    assert "INFO - Formative layer_recompute: [[2, 1, 0, 0, 0], [1, 0, 0, 0, 0]]\n" in captured.out
    assert all(line.startswith("INFO - ") for line in captured.out.splitlines())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_report_fits_80_columns(
    language: str, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    offset = [0] * 3 + [1] * 13
    config.write_text(flat(stages=16, layers=61, offset=offset, recompute=[3, 4] + [2] * 14))
    assert main(["normalize-recompute", "--lang", language, str(config)]) == 1
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if "Formative" not in line and "[" not in line]
    assert len(lines) < 60
    assert max(sum(2 if ord(letter) > 0x2E7F else 1 for letter in line) for line in table) <= 80
    assert any(line.split()[:5] == ["1", "0", "3-5", "3", {"en": "full", "zh": "完全"}[language]] for line in lines)


def test_excludes_get_a_column(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(flat().replace("recompute: False", "recompute: True, select_recompute_exclude: {'a': [1, 0]}"))
    assert main(["normalize-recompute", "--lang", "en", str(config)]) == 1
    assert "exclude" in capsys.readouterr().out


def test_what_the_framework_refuses_has_no_plan(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = as_json(config, flat(layers=9), capsys)
    assert code == 1
    assert shown["placement"] is None
    assert shown["formative"] is None
    assert shown["layers"] == []
    assert [problem["id"] for problem in shown["problems"]] == ["offset-rejected"]
    assert "ValueError: The sum of `offset` (0)" in shown["problems"][0]["message"]

    assert main(["normalize-recompute", "--lang", "zh", str(config)]) == 1
    assert "无法给出方案" in capsys.readouterr().out


SWAP = flat() + "swap_config: {swap: True, layer_swap: [{backward_prefetch: 20, layers: [0, 3]}]}\n"


def test_swap(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = as_json(config, SWAP, capsys)
    assert code == 0
    assert shown["formative"]["layer_swap"] == [{"backward_prefetch": 20, "layers": [0, 3]}]
    assert shown["layers"][3]["swap"] == [{"target": "", "prefetch": 20}]
    assert main(["normalize-recompute", "--lang", "zh", str(config)]) == 0
    assert "整层@20" in capsys.readouterr().out


def test_lines_of_each_layer_where_the_model_is_known(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = "model: {arch: {type: LlamaForCausalLM}, model_config: {use_flash_attention: True, "
    config.write_text(SWAP.replace("model: {model_config: {", model).replace("recompute: False", "recompute: [7]"))
    assert main(["normalize-recompute", "--as-log", "--framework-version", "1.9.0", str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines[-3].split()) == "INFO - Set layer swap at layer 0 and value is: 20"
    assert lines[-1] == "INFO - Set full recompute at layer 7"


def test_a_pattern_that_matches_nothing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = GUIDE.replace("model:\n", "model:\n  arch: {type: LlamaForCausalLM}\n")
    assert as_json(config, text, capsys)[0] == 0
    code, shown = as_json(config, text.replace("ffn_norm", "fnn_norm"), capsys)
    assert code == 1
    assert "'fnn_norm\\.norm' matches nothing in a layer of LlamaForCausalLM" in shown["problems"][-1]["message"]
    unknown = text.replace("ffn_norm", "fnn_norm").replace("LlamaForCausalLM", "MyForCausalLM")
    assert as_json(config, unknown, capsys)[0] == 0


def test_stage_and_layer(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(GUIDE)
    for options, expected in (
        (["--stage", "4"], [*range(19, 24), *range(44, 48)]),
        (["--layer", "17"], [17]),
        (["--layer", "17", "--stage", "0"], []),
    ):
        assert main(["normalize-recompute", "--json", *options, str(config)]) == 0
        assert [layer["layer"] for layer in json.loads(capsys.readouterr().out)["layers"]] == expected
    assert main(["normalize-recompute", "--lang", "en", "--stage", "5", str(config)]) == 2
    assert "stage 5 does not exist; the stages are 0 to 4" in capsys.readouterr().err
    assert main(["normalize-recompute", "--lang", "en", "--layer", "48", str(config)]) == 2
    assert "the layers are 0 to 47" in capsys.readouterr().err


def test_a_layer_count_from_the_command_line(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text("parallel_config: {pipeline_stage: 4}\nmodel: {model_config: {a: 1}}\n")
    assert main(["normalize-recompute", "--json", "--layers", "8", str(config)]) == 0
    assert json.loads(capsys.readouterr().out)["placement"] == [[2, 2, 2, 2]]


WRITTEN = GUIDE.replace("': True", "': [[4, 5, 5, 5, 5], [5, 5, 5, 5, 4]]").replace(
    "[2,1,0,0,0]\n  select", "[[1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]\n  select"
)
WRITTEN = WRITTEN.replace(
    "['ffn_norm\\.norm','attention_norm\\.norm']",
    "{'ffn_norm\\.norm': [[4, 5, 5, 5, 5], [5, 5, 5, 5, 4]], "
    "'attention_norm\\.norm': [[4, 5, 5, 5, 5], [5, 5, 5, 5, 4]]}",
)


def test_write(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(GUIDE)
    config.chmod(0o640)
    before = as_json(config, GUIDE, capsys)[1]
    for words in ("4 values written in explicit form", "the lists are explicit already"):
        assert main(["normalize-recompute", "--write", "--lang", "en", str(config)]) == 0
        captured = capsys.readouterr()
        assert captured.out == ""
        assert words in captured.err
        assert config.read_text() == WRITTEN
    assert config.stat().st_mode & 0o777 == 0o640
    after = as_json(config, WRITTEN, capsys)[1]
    assert {**after, "problems": []} == {**before, "problems": []}


def test_diff(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(flat(recompute="[9, 1, 1, True]"))
    assert main(["normalize-recompute", "--diff", str(config)]) == 1
    out = capsys.readouterr().out
    assert "-recompute_config: {recompute: [9, 1, 1, True]}" in out
    assert "+recompute_config: {recompute: [2, 1, 1, 2]}" in out
    assert config.read_text() == flat(recompute="[9, 1, 1, True]")


def test_nothing_is_written_where_the_framework_stops(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = flat(recompute="[-1, 0, 0, 0]")
    config.write_text(text)
    assert main(["normalize-recompute", "--write", "--lang", "en", str(config)]) == 2
    assert "nothing written" in capsys.readouterr().err
    assert config.read_text() == text


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("chunks", [1, 3])
def test_the_heat_map(
    language: str, chunks: int, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    rest = 61 % (16 * chunks)
    cells = [int(cell < rest) for cell in range(16 * chunks)]
    offset = [cells[start : start + 16] for start in range(0, len(cells), 16)]
    text = flat(stages=16, layers=f"61, pp_interleave_num: {chunks}", offset=offset, recompute=[2, 1] + [0] * 13 + [9])
    config.write_text(text + "parallel: {pipeline_config: {pipeline_interleave: True, pipeline_scheduler: 1f1b}}\n")
    assert main(["normalize-recompute", "-v", "--lang", language, str(config)]) == 1
    lines = capsys.readouterr().out.splitlines()
    start = next(
        number for number, line in enumerate(lines) if line.split()[:3] in (["stage", "0", "1"], ["阶段", "0", "1"])
    )
    assert len(lines[start].split()) == 17
    assert lines[start + 1].startswith("  chunk 0 ")
    assert "█" in lines[start + 1]
    assert lines[start + 2].split()[0] == ("2/4" if chunks == 1 else "1/2")
    assert not any("\033" in line for line in lines)
    assert max(map(len, lines[start : start + 1 + 2 * chunks])) <= 80


def test_the_short_screen_and_the_line_of_quiet(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(flat(recompute=[9, 0]))
    arguments = ["normalize-recompute", "--lang", "en", str(config)]
    code = main(arguments)
    short = capsys.readouterr().out
    assert "Recomputation per layer" in short
    assert "Formative" not in short
    assert "-v also shows" in short.splitlines()[-1]
    assert main([*arguments, "-v"]) == code
    assert "Formative layer_recompute" in capsys.readouterr().out
    assert main([*arguments, "-q"]) == code
    assert capsys.readouterr().out == "8 layers, 4 stages, 1 chunk: 0 errors, 2 warnings\n"
    config.write_text(flat(layers=9))
    assert main([*arguments, "-q"]) == 1
    assert capsys.readouterr().out == "no plan, rejected by the framework: 1 error, 0 warnings\n"


def test_lists_of_a_pipeline_tool(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text("offset: [[0, 0]]\nrecompute: [[1, 0]]\nselect_recompute: [[2, 0]]\n")
    command = ["normalize-recompute", "--from-sapp", str(config), "--json"]
    assert main([*command, "--layers", "4", "--stages", "2"]) in {0, 1}
    effects = [layer["recompute"] for layer in json.loads(capsys.readouterr().out)["layers"]]
    assert effects == ["full", "select", "none", "none"]
    assert main([*command, "--lang", "en"]) == 2
    assert "--from-sapp requires a config" in capsys.readouterr().err


SAPP = "offset: [[0, 0]]\nrecompute: [[1, 0]]\nselect_recompute: [[2, 0]]\n"


def test_lists_of_a_pipeline_tool_in_a_config(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = config.parent / "plan.txt"
    plan.write_text(SAPP)
    text = flat(stages=2, layers=4, offset=0, recompute=False)
    config.write_text(text)
    command = ["normalize-recompute", "--lang", "en", "--from-sapp", str(plan), str(config)]
    assert main([*command, "--json"]) == 0
    effects = [layer["recompute"] for layer in json.loads(capsys.readouterr().out)["layers"]]
    assert effects == ["full", "select", "none", "none"]
    assert main([*command, "--diff"]) == 1
    assert "+recompute_config: {recompute: [1, 0], select_recompute: [2, 0]}" in capsys.readouterr().out
    assert config.read_text() == text
    assert main([*command, "--write"]) == 0
    assert "recompute: [1, 0], select_recompute: [2, 0]}" in config.read_text()
    assert main([*command, "--diff"]) == 0
    capsys.readouterr()
    assert main([*command, "--to", "mindspeed-ms@r0.1.0"]) == 1
    assert "recompute: [1, 0]" in capsys.readouterr().out
    config.write_text(flat(stages=4))
    assert main([*command, "--write"]) == 2
    assert "for 1 chunk and 2 stages, but the config has 1 chunk and 4 stages" in capsys.readouterr().err


def test_the_release_of_a_target(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(flat(recompute=[1, 0, 2, 0]))
    command = ["normalize-recompute", "--lang", "en", str(config), "--to"]
    assert main([*command, "mindformers-pynative@2.0", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["dialect"], shown["framework_version"]) == ("mindformers-pynative", "2.0")
    assert main([*command, "mindformers-pynative@1.9"]) == 2
    assert "mindformers-pynative 2.0, 2.1" in capsys.readouterr().err
    assert main([*command, "megatrons"]) == 2
    assert "expected one of: mindformers, mindformers-pynative, mindspeed-ms" in capsys.readouterr().err


REDUCED = """
use_legacy: False
parallel_config: {pipeline_stage: 2}
model: {model_config: {num_layers: 4}}
recompute_config: {select_recompute: [1, 1, 1]}
"""


def test_sizes_that_contradict_what_the_config_takes_from_other_files(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (config.parent / "base.yaml").write_text(
        REDUCED.replace("model_config: {num_layers: 4}", "pretrained_model_dir: net")
    )
    (config.parent / "net").mkdir()
    (config.parent / "net" / "config.json").write_text('{"model_type": "qwen3", "num_hidden_layers": 4}')
    config.write_text("base_config: base.yaml\n")
    for option, value, outcome in (
        ("--layers", "5", "config.json: num_hidden_layers"),
        ("--stages", "3", "pipeline_stage"),
    ):
        assert main(["normalize-recompute", "--lang", "en", option, value, str(config)]) == 2
        error = capsys.readouterr().err
        assert f"{option} {value} contradicts the config" in error
        assert outcome in error
    assert main(["normalize-recompute", "--layers", "4", "--stages", "2", str(config)]) < 2


FLAT_ONE = "parallel_config: {pipeline_stage: STAGES}\nmodel: {model_config: {num_layers: 4}}\n"


def test_a_config_from_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = FLAT_ONE.replace("STAGES", "2") + "recompute_config: {recompute: [9, 1]}\n"
    for option, code, shown in (
        ("--json", 1, '"placement"'),
        ("--diff", 1, "+recompute_config"),
        ("--write", 1, "[2, 1]"),
    ):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["normalize-recompute", option, "-"]) == code
        assert shown in capsys.readouterr().out


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


def test_stage_and_layer_of_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert "help: change to (a leading '-' removes an option): --recompute-num-layers 1" in out


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
