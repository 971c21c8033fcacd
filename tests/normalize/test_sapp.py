"""Test merging SAPP's lists into a config: lists stay lists, patterns stay patterns, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from ms_tune.cli.main import main
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, UsageError
from ms_tune.source.yaml import SourceFile, parse_source
from ms_tune.text import Language, render
from tests.jobs import convert_sapp, merge_sapp, normalize_source, sapp_plan

OFFSET = [[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]]
FULL = [[2, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
SELECT = [[4, 5, 2, 0, 0], [1, 3, 0, 0, 0]]
PLAN = f"To put in yaml configuration:\n\toffset: {OFFSET}\n\trecompute: {FULL}\n\tselect_recompute: {SELECT}\n"
SIZES = {"layers": 48, "stages": 5, "chunks": 2}

STATIC = """\
use_legacy: False   # Mcore
parallel:
  pipeline_config: {pipeline_interleave: True, pipeline_scheduler: 1f1b}
parallel_config:
  pipeline_stage: 5  # stages
model:
  model_config:
    model_type: qwen3
    num_hidden_layers: 48
    pp_interleave_num: 2
    offset: [[0,0,0,0,4],   # by hand
             [0,0,0,0,4]]
recompute_config:
  recompute: True # all
  select_comm_recompute: False
"""
MERGED = (
    STATIC.replace("[[0,0,0,0,4],", "[[0,1,1,1,1],")
    .replace("[0,0,0,0,4]]", "[1,1,1,1,0]]")
    .replace("recompute: True", f"recompute: {FULL}")
    + f"  select_recompute: {SELECT}\n"
)
DYNAMIC = """\
parallelism: {pipeline_parallel: 5, pipeline_parallel_interleave_num: 2, data_parallel_shard: 2}
training: {steps: 10}
model: {model_type: qwen3, num_hidden_layers: 48}  # the model
recompute: {mode: None}
"""
MINDSPEED = """\
training_config: {}
model_config: {num_layers: 48, use_flash_attention: True}
parallel_config:
  pipeline_model_parallel_size: 5
  virtual_pipeline_model_parallel_size: 2
"""


def source(text: str) -> SourceFile:
    return parse_source(text, Path("config.yaml"))


def essence(plan: Any) -> list[tuple[int, int, str]]:  # noqa: ANN401 - plans of all kinds
    return [(layer.stage, layer.chunk, layer.recompute.value) for layer in plan.layers]


def with_value(key: str, value: str) -> str:
    return STATIC.replace("  select_comm_recompute: False\n", f"  {key}: {value}\n")


def test_only_the_lines_meant_change() -> None:
    merged = merge_sapp(PLAN, source(STATIC))
    assert merged.text == MERGED
    assert merged.count == 3
    assert [problem.id for problem in merged.plan.problems] == []
    again = merge_sapp(PLAN, source(MERGED))
    assert (again.text, again.count) == (MERGED, 0)


@pytest.mark.parametrize("text", [STATIC, DYNAMIC, MINDSPEED])
def test_every_dialect_does_what_sapp_planned(text: str) -> None:
    merged = merge_sapp(PLAN, source(text))
    wanted = sapp_plan(PLAN, **SIZES)
    assert essence(merged.plan) == essence(wanted)
    assert all(problem.severity.value == "info" for problem in merged.plan.problems)
    assert merge_sapp(PLAN, source(merged.text)).count == 0
    assert "# the model" in merged.text or text != DYNAMIC


def test_dynamic_modules_are_those_of_the_model() -> None:
    data = yaml.safe_load(merge_sapp(PLAN, source(DYNAMIC)).text)
    layers = ["2-3", "5-10", "29-31"]
    assert data["recompute"]["select_module"] == {"mlp.activation_func.silu": layers, "mlp.mul": layers}
    own = DYNAMIC.replace("{mode: None}", "{mode: select, select_module: {mlp.linear_fc1: ['0']}}")
    data = yaml.safe_load(merge_sapp(PLAN, source(own)).text)
    assert data["recompute"] == {
        "mode": "select",
        "select_module": {"mlp.linear_fc1": layers},
        "full_recompute_layer": ["0-1", "4", "24"],
    }


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (r"{'mlp\.mul': True, 'mlp\.linear_fc1': False}", {r"mlp\.mul": SELECT, r"mlp\.linear_fc1": False}),
        (r"['mlp\.mul', 'mlp\.split']", {r"mlp\.mul": SELECT, r"mlp\.split": SELECT}),
        ("True", SELECT),
        ("[1, 1, 1, 1, 1]", SELECT),
    ],
)
def test_patterns_stay_and_get_the_counts(value: str, wanted: object) -> None:
    data = yaml.safe_load(merge_sapp(PLAN, source(with_value("select_recompute", value))).text)
    assert data["recompute_config"]["select_recompute"] == wanted


@pytest.mark.parametrize("value", ["True", "False", "[0, 0, 0, 0, 1]", r"{'mlp\.mul': True}"])
def test_full_recompute_only_is_no_cause_for_complaint(value: str) -> None:
    lists = f"offset: {OFFSET}\nrecompute: {FULL}\nselect_recompute: {FULL}\nselect_comm_recompute: {FULL}"
    merged = merge_sapp(lists, source(with_value("select_recompute", value)))
    assert not merged.plan.problems
    assert {layer.recompute.value for layer in merged.plan.layers} == {"full", "none"}
    assert not normalize_source(source(merged.text)).problems
    for text in (lists, f"offset: {OFFSET}\nrecompute: {FULL}"):
        assert not sapp_plan(text, **SIZES).problems
        assert not convert_sapp(text, "mindformers", **SIZES).problems


def test_lists_without_a_config_stay_lists() -> None:
    for release in ("", "@1.7", "@2.1.0"):
        values = convert_sapp(PLAN, f"mindformers{release}", **SIZES).values
        assert values["recompute_config.recompute"] == FULL
        assert values["recompute_config.select_recompute"] == SELECT
        assert values["recompute_config.select_comm_recompute"] is False
        assert values["model.model_config.offset"] == OFFSET
    assert convert_sapp(PLAN, "mindformers@1.7", **SIZES).release == "1.7"


def test_with_swap_on_the_lists_name_layers() -> None:
    text = STATIC.replace("use_legacy: False", "use_legacy: True").replace("model_type: qwen3", "seq_length: 8")
    text = text.replace("recompute: True # all", "recompute: [0]") + "swap_config: {swap: True, layer_swap: []}\n"
    merged = merge_sapp(PLAN, source(text))
    assert yaml.safe_load(merged.text)["recompute_config"]["recompute"] == [0, 1, 4, 24]
    assert essence(merged.plan) == essence(sapp_plan(PLAN, **SIZES))


def test_kinds_that_sapp_was_not_asked_for_are_reported() -> None:
    merged = merge_sapp(PLAN, source(with_value("select_comm_recompute", "True")))
    assert [problem.id for problem in merged.plan.problems] == ["sapp-own-value"]
    assert yaml.safe_load(merged.text)["recompute_config"]["select_comm_recompute"] is True
    assert all(render(merged.plan.problems[0].message, language) for language in Language)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "pipeline_stage: 5",
            "pipeline_stage: 4",
            "2 chunks and 5 stages, but the config has 2 chunks and 4 stages",
        ),
        ("pipeline_interleave: True", "pipeline_interleave: False", "the config has 1 chunk and 5 stages"),
        (
            "num_hidden_layers: 48",
            "num_hidden_layers: 49",
            "places 48 layers, or a negative number in a cell; the model has 49",
        ),
    ],
)
def test_sizes_that_do_not_agree_are_both_named(old: str, new: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        merge_sapp(PLAN, source(STATIC.replace(old, new)))
    assert words in render(caught.value.message, Language.EN)
    assert render(caught.value.message, Language.ZH)


def test_a_value_after_an_alias_is_left_alone() -> None:
    text = STATIC.replace("recompute: True # all", "recompute: &all [1, 1, 1, 1, 1]") + "other: *all\n"
    with pytest.raises(ConfigError):
        merge_sapp(PLAN, source(text))


@pytest.mark.slow
def test_random_lists_come_to_what_sapp_means() -> None:
    random = Random(11)  # noqa: S311 - reproducible
    for _ in range(60):
        stages, chunks = random.randrange(1, 5), random.randrange(1, 4)
        counts = [[random.randrange(1, 5) for _ in range(stages)] for _ in range(chunks)]
        layers = sum(map(sum, counts))
        offset = [[count - layers // (stages * chunks) for count in row] for row in counts]
        full = [[random.randrange(count + 1) for count in row] for row in counts]
        more = [
            [random.randrange(low, count + 1) for low, count in zip(lows, row, strict=True)]
            for lows, row in zip(full, counts, strict=True)
        ]
        text = f"offset: {offset}\nrecompute: {full}\nselect_recompute: {more}\nselect_comm_recompute: {more}\n"
        wanted = essence(sapp_plan(text, layers=layers, stages=stages, chunks=chunks))
        pipeline = f"{{pipeline_interleave: {chunks > 1}, pipeline_scheduler: 1f1b}}"
        config = (
            f"use_legacy: {random.random() < 0.5}\nparallel: {{pipeline_config: {pipeline}}}\n"
            f"parallel_config: {{pipeline_stage: {stages}}}\n"
            f"model: {{model_config: {{num_layers: {layers}, pp_interleave_num: {chunks}}}}}\n"
        )
        merged = merge_sapp(text, source(config))
        assert essence(merged.plan) == wanted
        data = yaml.safe_load(merged.text).get("recompute_config", {})
        if any(map(any, full)):
            assert data["recompute"] == (full if chunks > 1 else full[0])


def test_a_pipeline_that_turns_round_is_not_what_sapp_means() -> None:
    text = STATIC.replace("pipeline_scheduler: 1f1b", "pipeline_scheduler: zero_bubble_v")
    text = text.replace("pipeline_stage: 5  # stages", "pipeline_stage: 5\n  micro_batch_num: 10")
    lists = "offset: [[0,1,1,1,1],[0,1,1,1,1]]\nrecompute: [[2,1,0,0,0],[1,0,0,0,0]]\n"
    with pytest.raises(UsageError) as caught:
        merge_sapp(lists, source(text))
    assert "would have a different meaning" in render(caught.value.message, Language.EN)


def test_what_is_in_other_files_counts_and_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes come from a base, layers from the model's ``config.json``: the lists are written to the config, the others are unchanged."""
    base = STATIC.replace("    num_hidden_layers: 48\n", "").replace(
        "use_legacy", "pretrained_model_dir: model\nuse_legacy"
    )
    (tmp_path / "base.yaml").write_text(base)
    (tmp_path / "model").mkdir()
    model = tmp_path / "model/config.json"
    model.write_text('{"num_hidden_layers": 48}')
    config, plan = tmp_path / "config.yaml", tmp_path / "plan.txt"
    own = "base_config: base.yaml\nrecompute_config:  # ours\n  select_comm_recompute: True\n"
    config.write_text(own)
    plan.write_text(PLAN)
    whole = STATIC.replace("comm_recompute: False", "comm_recompute: True")
    expected = merge_sapp(PLAN, source(whole), version="1.9").plan
    arguments = ["normalize-recompute", "--from-sapp", str(plan), "--framework-version", "1.9", str(config)]
    assert main([*arguments, "--diff"]) == 1
    assert main([*arguments, "--write"]) == 1  # SAPP has no results for select_comm_recompute
    said = capsys.readouterr().err
    assert said.count(f"includes settings of {tmp_path / 'base.yaml'}\n") == 2
    assert said.count(f"includes settings of {model}\n") == 2
    changed = yaml.safe_load(config.read_text())
    assert changed == {
        "base_config": "base.yaml",
        "model": {"model_config": {"offset": OFFSET}},
        "recompute_config": {"select_comm_recompute": True, "recompute": FULL, "select_recompute": SELECT},
    }
    assert config.read_text().startswith(own)
    assert (tmp_path / "base.yaml").read_text() == base
    again = merge_sapp(PLAN, config, version="1.9")
    assert (again.count, essence(again.plan)) == (0, essence(expected))
    assert again.plan.read_from == (str(tmp_path / "base.yaml"), str(model))


@pytest.mark.parametrize(("count", "value"), [(1, [[1] * 5] * 2), (0, False)])
def test_a_list_of_zeros_asks_for_nothing(count: int, value: object) -> None:
    converted = convert_sapp(f"select_recompute: {[[count] * 5] * 2}", "mindformers", layers=50, stages=5, chunks=2)
    assert converted.values["recompute_config.select_recompute"] == value
    assert converted.values["recompute_config.select_comm_recompute"] is False


def test_lists_without_an_offset_leave_the_configs_own() -> None:
    own = "offset: [[0, 0, 0, 0, 1], [0, 0, 0, 0, -1]]"
    start, end = STATIC.index("offset"), STATIC.index("recompute_config") - 1
    config = f"{STATIC[:start]}{own}{STATIC[end:]}".replace("num_hidden_layers: 48", "num_hidden_layers: 40")
    nothing = [[0] * 5] * 2
    merged = merge_sapp(f"recompute: {nothing}", source(config))
    assert merged.plan.placement == ((4, 4, 4, 4, 5), (4, 4, 4, 4, 3))
    assert own in merged.text
    with pytest.raises(UsageError, match="would have a different meaning"):  # SAPP counted in other cells
        merge_sapp(f"recompute: {FULL}", source(config))


def test_without_a_config_the_operators_are_those_of_a_model_that_is_named() -> None:
    converted = convert_sapp(PLAN, "mindformers-pynative", **SIZES)
    problem = next(problem for problem in converted.problems if problem.id == "convert-stand-in")
    assert problem.message.params["model"] == "qwen3"
    modules = converted.values["recompute.select_module"]
    assert isinstance(modules, dict)
    assert set(modules) == {"mlp.activation_func.silu", "mlp.mul"}


@pytest.mark.parametrize("full", ["['0-48']", "['48']", "['0-10']", "[]"])
def test_layers_that_predict_go_on_doing_what_the_config_says(full: str) -> None:
    """The lists only count the layers before them."""
    text = DYNAMIC.replace("qwen3", "deepseek_v3").replace("48}", "48, num_nextn_predict_layers: 1}")
    text = text.replace("{mode: None}", f"{{mode: full, full_recompute_layer: {full}}}")
    merged = merge_sapp(PLAN, source(text)).plan
    assert (merged.layers[48].layer, merged.layers[48].recompute is RecomputeMode.FULL) == (48, "48" in full)
    assert essence(merged)[:48] == essence(sapp_plan(PLAN, **SIZES))
