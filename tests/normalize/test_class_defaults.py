"""What a config leaves out is what the model's own class fills in."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from tests.jobs import dynamic_plan, static_plan

_DYNAMIC = """\
parallelism: {{data_parallel_shard: 8}}
training: {{steps: 10}}
lr_scheduler: {{type: ConstantWarmUpLR}}
train_dataset: {{dataloader: {{type: HFDataLoader}}}}
model: {{model_type: {model}}}
recompute: {{mode: select, select_module: {{{pattern}: ['{layers}']}}}}
"""
_STATIC = """\
use_legacy: False
run_mode: train
parallel_config: {{pipeline_stage: {stages}}}
model: {{model_config: {{model_type: {model}}}}}
recompute_config: {{recompute: False, select_recompute: {{'{pattern}': True}}}}
"""


def selecting(model: str, pattern: str, layers: str = "0-5", version: str = "2.1") -> list[int]:
    """The layers that select, and a dynamic graph's lint that has nothing to say of the pattern if there are some."""
    text = _DYNAMIC.format(model=model, pattern=pattern, layers=layers)
    source = parse_source(text, Path("a.yaml"))
    plan = dynamic_plan(source, version)
    found = [layer.layer for layer in plan.layers if layer.select_patterns]
    dialect = Dialect.MINDFORMERS_PYNATIVE
    told = {one.id for one in lint(source, dialect, built_in(dialect), version)}
    assert ("MST753" in told) == (not found)
    return found


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_dense_layers_of_deepseek(version: str) -> None:
    model = "deepseek_v3, num_hidden_layers: 6"
    assert selecting(model, "mlp.linear_fc1", "0-2", version) == [0, 1, 2]
    assert selecting(model, "mlp.linear_fc1", "0-5", version) == [0, 1, 2]
    assert selecting(model, "mlp.experts", "0-5", version) == [3, 4, 5]


@pytest.mark.parametrize(
    ("more", "experts"),
    [
        ("first_k_dense_replace: 0", [0, 1, 2, 3, 4, 5]),
        ("first_k_dense_replace: null, moe_layer_freq: 2", [0, 2, 4]),
        ("first_k_dense_replace: 0, moe_layer_freq: [0, 1, 0, 1, 1, 0]", [1, 3, 4]),
        ("moe_layer_freq: 1", [3, 4, 5]),
        ("n_routed_experts: 16, first_k_dense_replace: 5", [5]),
        ("num_moe_experts: 16", [3, 4, 5]),
    ],
)
def test_which_layers_have_experts(more: str, experts: list[int]) -> None:
    assert selecting(f"deepseek_v3, num_hidden_layers: 6, {more}", "mlp.experts") == experts


def test_layers_and_prediction_layers_of_the_class() -> None:
    text = _DYNAMIC.format(model="deepseek_v3", pattern="mlp.experts", layers="0-61")
    plan = dynamic_plan(parse_source(text, Path("a.yaml")), "2.1")
    assert plan.failure is None
    assert plan.placement == ((61,),)
    assert len(plan.layers) == 62  # one predicts
    assert [problem.id for problem in plan.problems if problem.id == "layers-of-class"] == ["layers-of-class"]


def test_layers_that_nobody_knows_are_asked_for() -> None:
    text = _DYNAMIC.format(model="mine", pattern="mlp.experts", layers="0")
    with pytest.raises(ConfigError, match="the number of layers"):
        dynamic_plan(parse_source(text, Path("a.yaml")), "2.1")


@pytest.mark.parametrize(
    ("model", "layers", "lines"),
    [
        ("deepseek_v3, num_hidden_layers: 6", 6, [0, 1, 2]),
        ("telechat3_moe, num_hidden_layers: 6", 6, [0, 1, 2]),
        ("deepseek_v3, num_hidden_layers: 6, first_k_dense_replace: 1", 6, [0]),
        ("deepseek_v3", 61, [0, 1, 2]),
        ("qwen3, num_hidden_layers: 2", 2, [0, 1]),
        ("qwen3_moe, num_hidden_layers: 2", 2, []),
    ],
)
def test_the_lines_of_dense_layers(model: str, layers: int, lines: list[int]) -> None:
    text = _STATIC.format(stages=1, model=model, pattern=r"mlp\.linear_fc1\.matmul")
    plan = static_plan(parse_source(text, Path("a.yaml")), "1.9")
    assert len(plan.layers) == layers
    told = [line for line in plan.log if line.startswith("Set select recompute on")]
    assert told == [f"Set select recompute on at layer {layer}: mlp.linear_fc1.matmul" for layer in lines]


def test_lists_are_logged_again_for_a_layer_that_only_the_class_predicts() -> None:
    text = "use_legacy: False\nmodel: {model_config: {model_type: deepseek_v3, num_hidden_layers: 4}}\n"
    source = parse_source(text, Path("a.yaml"))
    for more, times in ("", 2), (", num_nextn_predict_layers: 0", 1):
        changed = parse_source(source.text.replace("4}", f"4{more}}}"), source.path)
        log = static_plan(changed, "1.9").log
        assert sum(line.startswith("Formative layer_recompute") for line in log) == times


def test_a_legacy_model_reads_its_own_names_only() -> None:
    text = "model: {{model_config: {{type: LlamaConfig, {more}}}, arch: {{type: LlamaForCausalLM}}}}\n"
    for more, layers in ("num_hidden_layers: 4", 32), ("num_layers: 4", 4), ("num_layers: 4, mtp_depth: 1", 4):
        plan = static_plan(parse_source(text.format(more=more), Path("a.yaml")), "1.9")
        assert len(plan.layers) == layers


def test_stages_that_no_mode_splits() -> None:
    text = """\
parallel: {{parallel_mode: {mode}}}
parallel_config: {{pipeline_stage: 2}}
model: {{model_config: {{type: LlamaConfig, num_layers: 4}}}}
"""
    for mode, placement in (0, ((4,),)), (1, ((2, 2),)), ("AUTO_PARALLEL", ((2, 2),)):
        plan = static_plan(parse_source(text.format(mode=mode), Path("a.yaml")), "1.9")
        assert plan.placement == placement
        assert ("not-split" in {problem.id for problem in plan.problems}) == (mode == 0)


def test_a_named_folder_of_weights_keeps_the_class_quiet() -> None:
    text = "use_legacy: False\npretrained_model_dir: weights\nmodel: {model_config: {model_type: deepseek_v3}}\n"
    with pytest.raises(ConfigError, match=r"the number of layers is in config\.json"):
        static_plan(parse_source(text, Path("a.yaml")), "1.9")


@pytest.mark.parametrize(
    ("kind", "network", "known"),
    [
        ("qwen3", "Qwen3ForCausalLM", True),
        ("deepseek_v3", "TeleChat3MoeForCausalLM", True),  # both build latent attention, and experts by the same rules
        ("telechat3_moe", "Qwen3ForCausalLM", False),
        ("qwen3", "DeepseekV3ForCausalLM", False),
        ("qwen3_moe", "Qwen3ForCausalLM", False),
        ("qwen3", "MineForCausalLM", False),
    ],
)
def test_what_layers_select_is_told_of_the_network_that_is_built(kind: str, network: str, known: bool) -> None:  # noqa: FBT001
    text = (
        "use_legacy: False\nrun_mode: train\nparallel_config: {pipeline_stage: 1}\n"
        f"model: {{model_config: {{model_type: {kind}, architectures: [{network}], num_hidden_layers: 4, offset: 0}}}}\n"
        "recompute_config: {recompute: False, select_recompute: {'.*layernorm\\.norm': True, 'mlp\\.no': True}}\n"
    )
    plan = static_plan(parse_source(text, Path("c.yaml")), "2.1")
    shown = set(plan.layers[-1].select_patterns)
    assert (plan.matches is not None) is known
    assert ("as-written" in {problem.id for problem in plan.problems}) is not known
    assert (r"mlp\.no" in shown) is not known
    assert r".*layernorm\.norm" in shown
