"""Test what a config leaves to the model's class, the modules of a legacy layer, and lists written as text."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dialects import FrameworkStop
from ms_tune.dialects.mindformers.placement import RecomputeInputs
from ms_tune.dialects.mindspeed_ms.read import MAX_DEPTH, MAX_TEXT, TextTooBigError, literal_list
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from tests.jobs import dynamic_plan, known_layers, static_plan
from tests.normalize.conversion_cases import source_of

if TYPE_CHECKING:
    from ms_tune.dialects.operators import LayerModel


_DYNAMIC = """\
parallelism: {{data_parallel_shard: 8}}
training: {{steps: 10}}
lr_scheduler: {{type: ConstantWarmUpLR}}
train_dataset: {{dataloader: {{type: HFDataLoader}}}}
model: {{model_type: {model}}}
recompute: {{mode: select, select_module: {{{pattern}: ['{layers}']}}}}
"""


def selecting(model: str, pattern: str, layers: str = "0-5", version: str = "2.1") -> list[int]:
    """Return the layers with selective recomputation; check that lint does not report the pattern if there are some."""
    text = _DYNAMIC.format(model=model, pattern=pattern, layers=layers)
    source = parse_source(text, Path("a.yaml"))
    plan = dynamic_plan(source, version)
    found = [layer.layer for layer in plan.layers if layer.select_patterns]
    dialect = Dialect.MINDFORMERS_PYNATIVE
    ids = {one.id for one in lint(source, dialect, built_in(dialect), version)}
    assert ("MST753" in ids) == (not found)
    return found


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


def test_layers_that_nobody_knows_are_asked_for() -> None:
    text = _DYNAMIC.format(model="mine", pattern="mlp.experts", layers="0")
    with pytest.raises(ConfigError, match="the number of layers"):
        dynamic_plan(parse_source(text, Path("a.yaml")), "2.1")


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
def test_what_layers_select_is_reported_of_the_network_that_is_built(kind: str, network: str, known: bool) -> None:  # noqa: FBT001
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


def layers(architecture: str, **settings: object) -> LayerModel | None:
    model = {"arch": {"type": architecture}, "model_config": {"num_layers": 2, **settings}}
    return known_layers(source_of({"model": model}), RecomputeInputs(layers=2))


@pytest.mark.parametrize("joined", [True, False, None])
@pytest.mark.parametrize("flash", [True, False, None])
def test_two_switches_of_llama(flash: object, joined: object) -> None:
    written = {"use_flash_attention": flash, "qkv_concat": joined}
    found = layers("LlamaForCausalLM", **{name: value for name, value in written.items() if value is not None})
    assert found is not None
    if joined is True and not flash:
        assert found.tree(0) is None  # its structure is not in the trees
        return
    tree = found.tree(0)
    assert tree is not None
    names = {name for path in tree.paths() for name in path.split(".")}
    assert ("flash_attention" in names) is (flash is True)
    assert ("w_qkv" in names, "wq" in names) == (joined is True, joined is not True)


LITERALS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner), st.dictionaries(st.integers(), inner, max_size=2)),
    max_leaves=10,
)  # fmt: skip


def outcome(make: Callable[[], object]) -> object:
    """Return the result, or the name of the exception."""
    try:
        return make()
    except FrameworkStop as stop:
        return stop.exception
    except (ValueError, TypeError, SyntaxError) as error:
        return type(error).__name__


@given(st.one_of(LITERALS.map(repr), st.text("[]()1,-' a", max_size=12)))
def test_it_is_what_python_makes_of_it(text: str) -> None:
    assert outcome(lambda: literal_list(text)) == outcome(lambda: list(ast.literal_eval(text)))


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        ("[" * MAX_DEPTH + "]" * MAX_DEPTH, "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)),
        ("[{1: ()}]" + " " * 100, "[{1: (" * 17 + ")}]" * 17),
        ("[[], " + "[], " * 100 + "]", "[" * 60),
        ("[1]" + " " * (MAX_TEXT - 3), "[1]" + " " * (MAX_TEXT - 2)),
    ],
    ids=["brackets", "of all kinds", "side by side", "length"],
)
def test_bounds(within: str, beyond: str) -> None:
    assert literal_list(within) == list(ast.literal_eval(within))
    with pytest.raises(TextTooBigError):
        literal_list(beyond)


def test_signs_nest_as_brackets_do() -> None:
    with pytest.raises(FrameworkStop):
        literal_list("[" + "- " * 49 + "1]")
    with pytest.raises(TextTooBigError):
        literal_list("[" + "- " * 50 + "1]")
