"""Test conversions of complete and of arbitrary configs: names are those of the target's model, and lost parts are reported."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from yaml import YAMLError

from ms_tune.diagnostics import Severity
from ms_tune.dialects.mindformers.operators import find
from ms_tune.dialects.mindformers.placement import KEYS
from ms_tune.dialects.operators import topmost
from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.errors import MsTuneError, UnsupportedError, UsageError
from ms_tune.facts.models import counterpart
from ms_tune.facts.query import release_for, served
from ms_tune.normalize.convert import LayerAct, target_of
from ms_tune.source.yaml import SourceFile, parse_source
from ms_tune.text import Language, render
from tests.jobs import convert_source, normalize_source
from tests.normalize.conversion_cases import DYNAMIC, STATIC, Case, config_of, random_case, source_of, trees_of
from tests.oracle import cases, mindspeed_cases, pynative_cases

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan, LayerSpec
    from ms_tune.dialects.convert_layers import Converted


NEWEST = served(Dialect.MINDFORMERS_PYNATIVE)[-1]
LLAMA = r"""
run_mode: train
parallel_config: {pipeline_stage: 2}
model:
  arch: {type: LlamaForCausalLM}
  model_config: {type: LlamaConfig, num_layers: 8, use_flash_attention: True}
recompute_config:
  recompute: [1, 0]
  select_recompute: {'feed_forward\.mul': [3, 2], 'attention\.flash_attention': [2, 0], PATTERN: [2, 1]}
  select_comm_recompute: ['ffn_norm\.norm', 'attention_norm\.norm']
"""
DEEPSEEK = """
use_legacy: False
run_mode: train
parallel_config: {pipeline_stage: 2}
model: {model_config: {model_type: deepseek_v3, num_hidden_layers: 6, first_k_dense_replace: 3}}
recompute_config: {recompute: [1, 0], select_recompute: True, select_comm_recompute: [2, 2]}
"""


def source(text: str) -> SourceFile:
    return parse_source(text, Path("config.yaml"))


def llama(pattern: str) -> SourceFile:
    return source(LLAMA.replace("PATTERN", f"'{pattern}'"))


def ids(converted: Converted) -> list[str]:
    for problem in converted.problems:
        assert all(render(problem.message, language) for language in Language)
    return [problem.id for problem in converted.problems if problem.severity.value != "info"]


def messages_of(converted: Converted, name: str) -> list[str]:
    return [render(one.message, Language.EN) for one in converted.problems if one.id == f"convert-{name}"]


def test_legacy_names_become_dynamic_ones() -> None:
    converted = convert_source(llama(r"feed_forward\.w1\.activation\.silu"), "mindformers-pynative")
    assert ids(converted) == []
    assert converted.values["recompute.full_recompute_layer"] == ["0"]
    assert converted.values["recompute.select_module"] == {
        "mlp.activation_func.silu": ["1", "4"],
        "mlp.mul": ["1-2", "4-5"],
        "self_attention.core_attention": ["1"],
    }
    assert converted.values["recompute_comm.select_module"] == {
        "input_layernorm.norm": ["1-7"],
        "pre_mlp_layernorm.norm": ["1-7"],
    }
    assert messages_of(converted, "counterpart") == [
        f"The names were verified against the layers of qwen3 in {NEWEST}."
    ]


def test_a_release_that_does_less_is_reported_layer_by_layer() -> None:
    text = """
parallelism: {pipeline_parallel: 1, data_parallel_shard: 2}
training: {steps: 10}
model: {model_type: qwen3, num_hidden_layers: 6}
recompute: {mode: select, full_recompute_layer: ['0'], select_module: {mlp: ['1-2']}}
"""
    converted = convert_source(source(text), "mindformers@1.6")
    assert messages_of(converted, "differs") == ["Layer 1-2 would behave differently. Here: select mlp. There: -."]
    assert ids(convert_source(source(text), "mindformers@1.7")) == []


def test_a_model_that_is_not_known() -> None:
    text = LLAMA.replace("{type: LlamaForCausalLM}", "{type: OwnModel}").replace("PATTERN", r"'attention\.own'")
    converted = convert_source(source(text), "mindformers-pynative")
    assert ids(converted) == ["convert-stand-in", "convert-lost"]
    assert messages_of(converted, "lost")[0].startswith(r"select_recompute: attention\.own has no equivalent")


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("mindformers@1.5", "1.6, 1.7, 1.8, 1.9, 2.0, 2.1"),
        ("mindformers-pynative@1.9", "2.0, 2.1"),
        ("mindspeed-ms@r0.2.0", "mindspeed-ms 0.1"),
        ("mindformers@", "1.6, 1.7"),
        ("megatrons", "mindformers, mindformers-pynative, mindspeed-ms, megatron"),
        ("megatron@2.0", "2.2, 2.3, 26.0, 26.1"),
        ("megatron@1.0", "2.0, 2.1, 2.2"),
    ],
)
def test_targets_that_are_not_served(to: str, words: str) -> None:
    with pytest.raises((UsageError, UnsupportedError)) as caught:
        convert_source(source(DEEPSEEK), to)
    assert words in render(caught.value.message, Language.EN)
    assert render(caught.value.message, Language.ZH)


DIALECTS = ("mindformers", "mindformers-pynative", "mindspeed-ms")
RELEASES = {"mindformers": STATIC, "mindformers-pynative": DYNAMIC, "mindspeed-ms": ("r0.1.0",)}


def there(case: Case, to: str, release: str) -> tuple[Converted, LayerPlan | None]:
    """Return a conversion, and the plan of a config with its settings; None if parts were reported as lost."""
    converted = convert_source(case.source, f"{to}@{release}", version=case.release)
    if any(problem.severity is Severity.ERROR for problem in converted.problems):
        return converted, None
    target = config_of(converted.values, to, model_for(case, to))
    return converted, normalize_source(target, version=release)


def model_for(case: Case, to: str) -> dict[str, object]:
    """Return the target's model."""
    if to == "mindspeed-ms":
        return {}
    name = counterpart(case.model, "core" if to == "mindformers" else "dynamic")
    own = {"num_nextn_predict_layers": case.ahead} if "parallelism" in case.source.data and to != "mindformers" else {}
    return own | {
        "model_type": name,
        "hidden_act": "silu",
        "first_k_dense_replace": case.dense,
        "moe_layer_freq": 1,
    }


def act(layer: LayerSpec, *, merged: bool) -> tuple[object, ...]:
    cell = () if merged else (layer.stage, layer.chunk)
    return (*cell, layer.recompute is RecomputeMode.FULL, bool(layer.select_patterns))


@pytest.mark.slow
@pytest.mark.parametrize("to", DIALECTS)
@pytest.mark.parametrize("start", DIALECTS)
def test_every_layer_does_in_the_target_what_it_did(start: str, to: str) -> None:
    kept = 0
    for seed in range(80):
        random = Random(seed)  # noqa: S311 - reproducible
        case = random_case(random, start)
        release = random.choice(RELEASES[to])
        if start == to and case.model[:1].isupper():
            continue  # a legacy model stays legacy, and config_of makes the others
        before = normalize_source(case.source, version=case.release)
        assert before.failure is None, (seed, before.failure)
        converted, after = there(case, to, release)
        names = ids(converted)
        if after is None:
            assert {f"convert-{name}" for name in ("lost", "holes", "excludes", "swap")} & set(names), (seed, names)
            continue
        kept += 1
        merged = "convert-chunks-merged" in names
        assert after.failure is None, (seed, after.failure)
        count = min(len(before.layers), len(after.layers))
        if "mindformers-pynative" not in {start, to} or start == to:
            assert len(before.layers) == len(after.layers)
        assert [act(one, merged=merged) for one in after.layers[:count]] == [
            act(one, merged=merged) for one in before.layers[:count]
        ], seed
        if to != "mindformers-pynative":  # there, communication in a recomputed module follows the module
            assert [bool(one.comm_patterns) for one in after.layers] == [
                bool(one.comm_patterns) for one in before.layers[:count]
            ]
    assert kept > 25


@pytest.mark.slow
@pytest.mark.parametrize(("start", "to"), [DIALECTS[:2], DIALECTS[1::-1]])
def test_there_and_back_names_the_same_operators(start: str, to: str) -> None:
    same = 0
    for seed in range(150):
        random = Random(seed)  # noqa: S311 - reproducible
        case = random_case(random, start)
        if case.model not in {"qwen3", "deepseek_v3"}:
            continue
        release = random.choice(RELEASES[to])
        converted, after = there(case, to, release)
        if after is None or ids(converted):
            continue
        target = Case(config_of(converted.values, to, model_for(case, to)), release, case.model, case.dense)
        back, again = there(target, start, case.release)
        if again is None or ids(back):
            continue
        same += 1
        before = normalize_source(case.source, version=case.release)
        for one, other in zip(before.layers, again.layers, strict=True):
            for attribute in ("select_patterns", "comm_patterns"):
                assert reached(case, one, attribute) == reached(case, other, attribute), (seed, one.layer, attribute)
    assert same > 12


def reached(case: Case, layer: LayerSpec, attribute: str) -> list[str]:
    """Return the paths that a layer's patterns match in the real tree of its model."""
    dynamic = "parallelism" in case.source.data
    kinds = trees_of(case.model, case.release, dynamic=dynamic)
    tree = kinds[0] if layer.layer < case.dense else kinds[-1]
    modules = attribute == "select_patterns"
    found = []
    for pattern in getattr(layer, attribute):
        one = find(tree, pattern.replace(".", r"\.") if dynamic else pattern, matches_cells=modules)
        found += [*one.operators, *(one.cells if modules else ())]
    return topmost(found)


SWAP = """
parallelism: {pipeline_parallel: 1, data_parallel_shard: 2}
training: {steps: 10}
model: {model_type: qwen3, num_hidden_layers: 8}
recompute: {mode: full, full_recompute_layer: FULL}
swap:
  enable: True
  default_prefetch: 2
  layer_swap: [{layers: ['1-2']}]
  op_swap: [{op_name: self_attention.core_attention, layers: ['3-4']}]
"""


@pytest.mark.parametrize("full", [["0"], ["0", "6"]])
def test_swap_reaches_the_model_and_comes_back(full: list[str]) -> None:
    case = Case(source(SWAP.replace("FULL", str(full))), "2.1", "qwen3")
    converted, after = there(case, "mindformers", "1.9")
    assert ids(converted) == ["convert-prefetch"]
    assert after is not None
    assert converted.values["model.model_config.op_swap"] == [
        {"op_name": r"self_attention\.core_attention", "backward_prefetch": 2, "layers": [3, 4]}
    ]
    # Without it the framework would read layer numbers as counts, and refuse more numbers than stages.
    assert ("swap_config.swap" in converted.values) is (len(full) > 1)
    target = Case(config_of(converted.values, "mindformers", model_for(case, "mindformers")), "1.9", "qwen3")
    _, again = there(target, "mindformers-pynative", "2.1")
    before = normalize_source(case.source, version="2.1")
    assert again is not None
    assert [(layer.recompute, layer.swap) for layer in again.layers] == [
        (layer.recompute, layer.swap) for layer in before.layers
    ]


def test_without_a_release_a_target_is_the_newest_but_for_the_static_graph() -> None:
    """For the static graph it is the installed release, or else the default."""
    assert target_of("mindformers").release == release_for(Dialect.MINDFORMERS).version
    assert target_of("mindformers-pynative").release == served(Dialect.MINDFORMERS_PYNATIVE)[-1]
    assert target_of("mindspeed-ms").release == "r0.1.0"
    assert target_of("mindformers@2.1.0").release == "2.1"
    assert convert_source(source(DEEPSEEK), "mindformers-pynative").release == served(Dialect.MINDFORMERS_PYNATIVE)[-1]


def test_a_difference_in_swap_names_what_is_moved() -> None:
    nothing = frozenset[str]()
    names = {"select": nothing, "comm": frozenset({"mlp"}), "exclude": nothing}
    act = LayerAct((1, 0), full=True, names=names, swaps=frozenset({("mlp", 1), ("", 2)}))
    assert act.describe(None) == "stage 1, chunk 0; full; comm mlp; swap *@2, mlp@1"
    assert act.describe(act._replace(swaps=frozenset({("", 2)}))) == "full; swap mlp@1"


def wild(random: Random, dialect: str) -> dict[str, Any]:
    """Return a config like those of the comparisons with the frameworks' code, valid or not."""
    if dialect == "mindspeed-ms":
        return {"training_config": {}, **mindspeed_cases.random_config(random)}
    if dialect == "mindformers-pynative":
        config, layers, ahead = pynative_cases.random_config(random, "2.1")
        named = {"num_layers": layers, "mtp_num_layers": ahead, "model_type": random.choice(("qwen3", "own"))}
        return {"training": {"steps": 1}, **config, "model": named}
    inputs = cases.random_case(random)
    model: dict[str, Any] = {"num_layers": inputs.layers, "offset": inputs.offset}
    if inputs.interleave_num is not None:
        model["pp_interleave_num"] = inputs.interleave_num
    return {
        "run_mode": "train",
        "use_legacy": inputs.legacy,
        "parallel": {
            "pipeline_config": {"pipeline_interleave": inputs.interleave, "pipeline_scheduler": inputs.scheduler}
        },
        "parallel_config": {"pipeline_stage": inputs.stages, "micro_batch_num": inputs.micro_batches},
        "model": {"arch": {"type": random.choice(("LlamaForCausalLM", "Own"))}, "model_config": model},
        "recompute_config": dict(zip(KEYS, inputs.values, strict=True)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("to", DIALECTS)
@pytest.mark.parametrize("start", DIALECTS)
def test_any_plan_is_kept_or_said_to_be_lost(start: str, to: str) -> None:
    kept = 0
    for seed in range(60):
        random = Random(seed)  # noqa: S311 - reproducible
        try:
            source = source_of(wild(random, start))
        except (MsTuneError, YAMLError):
            continue  # values that YAML cannot represent
        try:
            converted = convert_source(source, to)
        except MsTuneError:
            continue
        for problem in converted.problems:
            assert all(render(problem.message, language) for language in Language)
        if any(problem.severity is Severity.ERROR for problem in converted.problems):
            continue
        before = normalize_source(source)
        after = normalize_source(config_of(converted.values, to, {}))
        assert after.failure is None, (seed, after.failure)
        full = [layer.recompute is RecomputeMode.FULL for layer in before.layers]
        count = min(len(full), len(after.layers))
        assert [layer.recompute is RecomputeMode.FULL for layer in after.layers[:count]] == full[:count], seed
        kept += 1
    assert kept > 4
