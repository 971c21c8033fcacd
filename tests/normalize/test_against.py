"""Compare a config with the logs of a job: equal, different with a reason, or unreadable."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.errors import TraceError, UnsupportedError
from ms_tune.normalize.compare_log import Compared, LogVerdict
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, render
from tests.jobs import compare, normalize_source

CONFIG = """\
use_legacy: False
run_mode: train
trainer: {}
parallel_config: {pipeline_stage: 2}
model: {model_config: {model_type: qwen3, architectures: [Qwen3ForCausalLM], num_hidden_layers: 6, offset: 0}}
recompute_config:
  recompute: [1, 0]
  select_recompute: {'mlp\\.activation_func\\.silu': [2, 2]}
  select_comm_recompute: {'input_layernorm\\.norm': [3, 1]}
"""
DYNAMIC = """\
parallelism: {pipeline_parallel: 2}
training: {steps: 10}
lr_scheduler: {type: ConstantWarmUpLR}
train_dataset: {dataloader: {type: HFDataLoader}}
model: {model_type: deepseek_v3, num_hidden_layers: 8, num_nextn_predict_layers: 0}
recompute: {mode: full, full_recompute_layer: ['0-2', '6']}
"""
PLACE = "mindformers./output/log[mindformers/parallel_core/training_graph/transformer/utils.py:172]"


def lines_of(config: str, version: str = "1.9") -> list[str]:
    return list(normalize_source(parse_source(config, __import__("pathlib").Path("c.yaml")), version).log)


def prefixed(line: str) -> str:
    return f"2026-11-21 00:03:32,914 - {PLACE} - INFO - {line}"


def as_log(lines: list[str], *, more: bool = True) -> str:
    ends = [prefixed("Create loss wrapper"), "{ Epoch:[  1/  2], step:[    2/   10], loss: 10.2 }"] if more else []
    return "\n".join([*map(prefixed, ["..........Init Config..........", *lines]), *ends, ""])


def against(folder: Path, config: str, *logs: str, version: str = "1.9") -> Compared:
    paths = [folder / f"worker_{number}.log" for number in range(len(logs))]
    for path, text in zip(paths, logs, strict=True):
        path.write_text(text)
    return compare(parse_source(config, folder / "c.yaml"), paths, version)


def why(result: Compared) -> str:
    return " ".join(render(reason, Language.EN) for reason in result.why)


def command(folder: Path, config: str, log: str = "") -> list[str]:
    """Return the command line that compares a config with the logs of a folder, or one of them."""
    (folder / "c.yaml").write_text(config)
    words = ["--lang", "en", "--framework-version", "1.9", "--against", str(folder / log), str(folder / "c.yaml")]
    return ["normalize-recompute", *words]


def changed(config: str, old: str, new: str) -> str:
    assert old in config
    return config.replace(old, new)


def test_the_same(tmp_path: Path) -> None:
    lines = lines_of(CONFIG)
    assert sum(line.startswith("Set ") for line in lines) == 7
    result = against(tmp_path, CONFIG, as_log(lines), as_log(lines))
    assert (result.verdict, result.differences, result.unreadable, result.why) == (LogVerdict.SAME, (), (), ())
    assert [state.logged[0] for state in result.layers if state.logged][:2] == [
        "full recompute",
        "select recompute: mlp.activation_func.silu",
    ]
    assert all(state.agrees for state in result.layers)
    assert [log.rank for log in result.logs] == [0, 1]


def test_the_prefix_of_info_log_and_patterns_with_single_backslashes(tmp_path: Path) -> None:
    text = "\n".join(
        f"[INFO] 2026-11-21 00:03:32,914 [mindformers/x.py:1] __init__: {line}" for line in lines_of(CONFIG)
    )
    assert against(tmp_path, CONFIG, text.replace("\\\\", "\\") + "\n\n[INFO] end\n").verdict is LogVerdict.SAME


@pytest.mark.parametrize(
    ("old", "new", "what", "reason"),
    [
        ("layers: 6", "layers: 8", "num_layers per stage", "the job has 8 layers, the config 6"),
        ("pipeline_stage: 2", "pipeline_stage: 3", "num_layers per stage", "the job has 3 stages with 1 chunk"),
        ("offset: 0", "offset: [1, -1]", "num_layers per stage", "the job used offset [[1, -1]]"),
        ("recompute: [1, 0]", "recompute: [1, 1]", "Formative layer_recompute", "the log does not show it"),
        ("[2, 2]", "[2, 3]", "Formative select_recompute", "the log does not show it"),
    ],
)
def test_another_config(  # noqa: PLR0913, PLR0917 - a case
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, what: str, reason: str
) -> None:
    log = as_log(lines_of(changed(CONFIG, old, new)))
    result = against(tmp_path, CONFIG, log)
    assert (result.verdict, result.differences[0].what) == (LogVerdict.DIFFERS, what)
    assert f"- {what}:" in log.split("\n")[(result.differences[0].line or 0) - 1]
    assert main(command(tmp_path, CONFIG)) == 1
    assert reason in capsys.readouterr().out


def test_a_value_that_was_overruled(tmp_path: Path) -> None:
    lines = lines_of(changed(CONFIG, "recompute: [1, 0]", "recompute: [1, 1]"))
    given = "initial recompute_config from dict: {'recompute': [1, 1], 'select_recompute': False, 'mp_comm_recompute': True}"
    result = against(tmp_path, CONFIG, as_log([given, *lines]))
    assert "the job used recompute_config.recompute = [1, 1] (line 2), but the file has [1, 0]" in why(result)


def test_the_rules_of_another_release(tmp_path: Path) -> None:
    result = against(tmp_path, CONFIG, as_log(lines_of(CONFIG, "1.6")))
    assert result.verdict is LogVerdict.DIFFERS
    assert "try --framework-version 1.6" in why(result)


def test_several_runs_in_one_file(tmp_path: Path) -> None:
    right, wrong = as_log(lines_of(CONFIG)), as_log(lines_of(changed(CONFIG, "[1, 0]", "[2, 0]")))
    result = against(tmp_path, CONFIG, wrong + wrong + right)
    assert (result.verdict, len(result.logs[0].runs)) == (LogVerdict.SAME, 3)
    result = against(tmp_path, CONFIG, right + wrong)
    assert result.verdict is LogVerdict.DIFFERS
    assert "set-up 1 of 2 in this log, from line 2, matches the config" in why(result)


def test_ranks_that_write_into_one_file(tmp_path: Path) -> None:
    lines = list(map(prefixed, ["..........Init Config..........", *lines_of(CONFIG)]))
    twice = [line for line in lines for _ in range(8)]
    assert against(tmp_path, CONFIG, "\n".join([*twice, "end", ""])).verdict is LogVerdict.SAME
    shifted = [*lines[:9], *lines[:5], *lines[9:14], *lines[5:], *lines[14:], "end", ""]
    assert against(tmp_path, CONFIG, "\n".join(shifted)).verdict is LogVerdict.SAME


def test_lines_that_ran_into_each_other(tmp_path: Path) -> None:
    text = as_log(lines_of(CONFIG))
    glued = text.replace("mlp.activation_func.silu\n", "mlp.activation_func.si", 1)
    result = against(tmp_path, CONFIG, glued)
    line = glued[: glued.index("func.si2026")].count("\n") + 1
    assert (result.verdict, [number for _, number in result.unreadable]) == (LogVerdict.UNREADABLE, [line])
    # The same line once more, whole: of another rank.
    again = as_log(lines_of(CONFIG)[8:])
    assert again.startswith("2026")
    assert against(tmp_path, CONFIG, glued + again.split("\n", 1)[1]).verdict is not LogVerdict.DIFFERS


@pytest.mark.slow
def test_every_place_to_cut_off(tmp_path: Path) -> None:
    """A shortened log never differs; missing lines are reported with their line."""
    text = as_log(lines_of(CONFIG), more=False)
    for end in range(len(prefixed("..........Init Config..........")) + 1, len(text) - 1, 7):
        last = text[:end].count("\n") + (text[end - 1] != "\n")
        if "] - INFO - num_layers per stage: " not in text[:end]:
            with pytest.raises(TraceError) as caught:
                against(tmp_path, CONFIG, text[:end])
            assert caught.value.line == last
            continue
        result = against(tmp_path, CONFIG, text[:end])
        assert result.verdict is LogVerdict.UNREADABLE, (text[:end][-200:], result.differences)
        assert last - 1 <= result.unreadable[-1][1] <= last


def test_a_log_of_several_ranks_cut_off_after_any_line(tmp_path: Path) -> None:
    """The log ends there even if the last line repeats an earlier one."""
    lines = lines_of(CONFIG)
    for end in range(1, len(lines)):
        text = as_log([line for line in lines[:end] for _ in range(2)], more=False)
        assert against(tmp_path, CONFIG, text).verdict is LogVerdict.UNREADABLE, lines[end - 1]
        assert against(tmp_path, CONFIG, text + prefixed("loss: 3.1\n")).verdict is not LogVerdict.UNREADABLE


@pytest.mark.slow
def test_every_changed_number(tmp_path: Path) -> None:
    """Any changed digit in a line about layers makes a difference."""
    lines = lines_of(CONFIG)
    for number, line in enumerate(lines):
        for place, sign in enumerate(line):
            if sign.isdigit() and "fc" not in line[max(0, place - 2) : place]:
                other = line[:place] + str((int(sign) + 1) % 10) + line[place + 1 :]
                result = against(tmp_path, CONFIG, as_log([*lines[:number], other, *lines[number + 1 :]]))
                assert result.verdict is LogVerdict.DIFFERS, other


def test_ranks_that_log_their_own_layers(tmp_path: Path) -> None:
    lines = lines_of(DYNAMIC, "2.1")
    assert lines == [f"Set full recompute at layer {layer}" for layer in (0, 1, 2, 6)]
    first = as_log(["Applying parallelism to model...", *lines[:3]])
    result = against(tmp_path, DYNAMIC, first, version="2.1")
    assert result.verdict is LogVerdict.SAME
    assert [state.agrees for state in result.layers] == [True] * 4 + [None] * 4
    second = as_log(["Applying parallelism to model...", *lines[3:]])
    result = against(tmp_path, DYNAMIC, first, second, version="2.1")
    assert result.verdict is LogVerdict.SAME
    assert all(state.agrees for state in result.layers)
    other = as_log(["Applying parallelism to model...", "Set full recompute at layer 7"])
    result = against(tmp_path, DYNAMIC, first, other, version="2.1")
    assert [(one.layer, one.logged) for one in result.differences] == [(6, None), (7, "")]


def test_a_dynamic_job_that_recomputes_nothing(tmp_path: Path) -> None:
    log = as_log(["Applying parallelism to model..."])
    result = against(tmp_path, changed(DYNAMIC, "pipeline_parallel: 2", "pipeline_parallel: 1"), log, version="2.1")
    assert [one.layer for one in result.differences] == [0, 1, 2, 6]
    assert "the log has no such line" in why(result)


@pytest.mark.parametrize(
    ("more", "what", "layers"),
    [
        ("", "select recompute", [1, 3, 4]),
        (
            ", swap: True, op_swap: [{op_name: silu, layers: [0, 2], backward_prefetch: 1}], layer_swap: []",
            "op_swap",
            [0, 2],
        ),
        (", swap: True, default_prefetch: 1", "op_swap", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_an_operator_that_a_model_may_not_have_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, what: str, layers: list[int]
) -> None:
    """It is not logged if it does not exist; a different list is still a difference."""
    config = changed(CONFIG, "offset: 0", f"offset: 0{more}")
    if more:
        config = config.split("recompute_config")[0] + "recompute_config: {recompute: [0], select_recompute: False}\n"
    unknown = changed(config, "model_type: qwen3, architectures: [Qwen3ForCausalLM]", "model_type: mine")
    lines = [line for line in lines_of(config) if f"Set {what}" not in line]
    result = against(tmp_path, unknown, as_log(lines))
    assert (result.verdict, result.differences) == (LogVerdict.UNKNOWN, ())
    assert result.unknown == tuple((what, layer) for layer in layers)
    assert [state.agrees for state in result.layers] == [None if one in layers else True for one in range(6)]
    words = command(tmp_path, unknown, "worker_0.log")
    assert main(words) == 2
    assert "unknown" in capsys.readouterr().out
    assert main([*words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["unknown"][0] == {"what": what, "layer": layers[0]}
    other = [line.replace("per stage: [[3, 3]]", "per stage: [[2, 4]]") for line in lines]
    assert against(tmp_path, unknown, as_log(other)).verdict is LogVerdict.DIFFERS


@pytest.mark.parametrize("layers", [[], [3]])
def test_recompute_of_all_layers_next_to_swap_is_logged_nowhere(layers: list[int], tmp_path: Path) -> None:
    swap = f"swap: True, op_swap: [], layer_swap: [{{layers: {layers}, backward_prefetch: 1}}]"
    config = changed(CONFIG, "offset: 0", f"offset: 0, {swap}").split("recompute_config")[0]
    config += "recompute_config: {recompute: True}\n"
    lines = lines_of(config)
    assert sum(line.startswith("Set ") for line in lines) == len(layers)
    unknown = changed(config, "model_type: qwen3, architectures: [Qwen3ForCausalLM]", "model_type: mine")
    assert against(tmp_path, unknown, as_log(lines)).verdict is LogVerdict.SAME
    partly = changed(unknown, "recompute: True", "recompute: [1, 2]")
    assert [one.layer for one in against(tmp_path, partly, as_log(lines)).differences] == [None, 1, 2]


def test_files_that_say_nothing(tmp_path: Path) -> None:
    for text in ("", "hello\n" * 3, as_log([])):
        with pytest.raises(TraceError) as caught:
            against(tmp_path, CONFIG, text)
        assert caught.value.line == text.count("\n")
    with pytest.raises(TraceError, match="no such file"):
        compare(parse_source(CONFIG, tmp_path / "c.yaml"), [tmp_path / "gone.log"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError, match="no log in this folder"):
        compare(parse_source(CONFIG, tmp_path / "c.yaml"), [tmp_path / "empty"])


def test_another_dialect(tmp_path: Path) -> None:
    config = (
        "parallel_config: {pipeline_model_parallel_size: 1}\nmodel_config: {num_layers: 2}\n"
        "training_config: {training_iters: 1}\noptimizer_config: {}\ndataset_config: {}\n"
    )
    with pytest.raises(UnsupportedError, match="does not log"):
        against(tmp_path, config, "x\n", version="r0.1.0")


def test_hostile_lines(tmp_path: Path) -> None:
    bad = [
        "Formative layer_recompute: " + "[" * 5000,
        "Formative select_recompute: __import__('os').system('touch pwned')",
        "Set full recompute at layer 999999999999999999999",
        "Set \x00 at layer \x1b[31m",
        "Formative layer_recompute: " + "9" * 100_000,
    ]
    result = against(tmp_path, CONFIG, as_log([*bad, *lines_of(CONFIG)]))
    assert result.verdict is not LogVerdict.SAME
    assert not (tmp_path / "pwned").exists()


@pytest.mark.slow
def test_a_long_log_is_streamed(tmp_path: Path) -> None:
    """200 MB in a few seconds and a few megabytes; a line without an end is read, too."""
    file = tmp_path / "worker_0.log"
    step = (
        "2026-11-21 00:03:32,914 - mindformers - INFO - { Epoch:[  1/  2], step:[    2/   10], loss: 10.2 }\n" * 10_000
    )
    with file.open("w") as log:
        log.write(as_log(lines_of(CONFIG)))
        log.write("x" * 3_000_000)
        for _ in range(190):
            log.write(step)
    tracemalloc.start()
    begin = time.process_time()
    result = compare(parse_source(CONFIG, tmp_path / "c.yaml"), [file], "1.9")
    seconds, peak = time.process_time() - begin, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.verdict is LogVerdict.SAME
    assert result.logs[0].lines > 1_900_000
    assert peak < 64 * 1024**2
    assert seconds < 20


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "worker_3.log").write_text(as_log(lines_of(changed(CONFIG, "[1, 0]", "[1, 1]"))))
    words = [*command(tmp_path, CONFIG), "--json"]
    assert main(words) == 1
    result = json.loads(capsys.readouterr().out)
    assert set(result) == {
        "version", "verdict", "dialect", "framework_version", "read_from", "logs", "differences", "why", "unreadable",
        "unknown",
        "layers",
    }  # fmt: skip
    assert result["logs"] == [{"file": str(tmp_path / "worker_3.log"), "rank": 3, "runs": 1, "line": 2}]
    assert result["differences"][0] == {
        "file": str(tmp_path / "worker_3.log"),
        "line": 6,
        "what": "Formative layer_recompute",
        "layer": None,
        "planned": "[[1, 0]]",
        "logged": "[[1, 1]]",
    }
    assert [layer["agrees"] for layer in result["layers"]] == [True, True, True, False, True, True]
    assert main([*words, "--stage", "0"]) == 2


def test_a_line_that_is_missing_before_the_last_one_is_a_difference(tmp_path: Path) -> None:
    """If a log ends early, only the lines after its last line are unknown."""
    lines = lines_of(CONFIG)
    ends = [number for number, line in enumerate(lines) if "at layer" in line]
    text = as_log([*lines[: ends[0]], *lines[ends[0] + 1 :]])
    result = against(tmp_path, CONFIG, text[: text.index(lines[ends[-1]])])
    first = int(lines[ends[0]].split("at layer ")[1].split(":")[0])
    assert result.verdict is LogVerdict.DIFFERS
    assert [one.layer for one in result.differences] == [first]
    assert result.layers[first].agrees is False
