"""The lines that a release logs for each layer, against its own class looking up patterns in layers made of our trees."""

from __future__ import annotations

import copy
import os
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.dialects.mindformers.operators import ahead_lines, find_failure, layer_lines
from ms_tune.dialects.mindformers.placement import KEYS, RecomputeValues, SwapValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.dialects.operators import LayerModel, Tree, bare_model, layer_model
from ms_tune.facts.query import VERSIONS
from tests.oracle import layer_setting
from tests.oracle.cases import random_case

if TYPE_CHECKING:
    from collections.abc import Callable

    from ms_tune.dialects.mindformers.placement import RecomputeInputs

CASES = int(os.environ.get("MS_TUNE_ORACLE_CASES", "1250")) // 10  # of each release
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))

_LEGACY = (("LlamaForCausalLM", "", 0), ("TelechatForCausalLM", "", 0), ("DeepseekV3ForCausalLM", "", 2))
_CORE = (("qwen3", "silu", 0), ("deepseek_v3", "silu", 2), ("telechat3_moe", "fusedswiglu", 1))


def random_model(random: Random, inputs: RecomputeInputs) -> LayerModel:
    if inputs.reduced:
        return bare_model("")
    while True:
        name, variant, dense = random.choice(_LEGACY if inputs.legacy else _CORE)
        model = layer_model(name, inputs.version, variant, (False,) * dense)
        if model is not None and (model.ahead is not None or not inputs.mtp_layers or inputs.legacy):
            return model


_PATTERNS = {
    True: (
        r"feed_forward\.mul",
        r"feed_forward\.w1\.activation\.silu",
        r"feed_forward\.w[13]\.matmul",
        r"feed_forward\.w.",
        r".*_norm\.norm",
        r".*\.(norm|mul)",
        r".*\.flash_attention",
        r"attention\.w.\.(matmul|cast)",
        r".*\.w1\..*ation",
        "attention",
        "atten.*",
        "feed_forward.mul",
        r"feed_forward\.w1\.(",
        r"layers\.feed_forward",
    ),
    False: (
        r"mlp\.mul",
        r"mlp\.activation_func\.silu",
        r"mlp\.shared_experts\.mul",
        r".*\.shared_experts\..*_func\.silu",
        r"mlp\.(experts|linear_fc.)",
        r".*layernorm\.norm",
        r"self_attention\..*\.matmul",
        r".*\.core_attention\.flash_attention",
        "mlp",
        r"mlp\.linear_fc1\.matmul",
        "mlp.mul",
    ),
}


class _Operator:
    """A primitive."""

    def recompute(self, mode: bool = True) -> None:  # noqa: FBT001, FBT002 - the framework's signature
        """Nothing is computed here."""

    def add_prim_attr(self, name: str, value: bool) -> None:  # noqa: FBT001 - as above
        """Likewise."""

    def _offload(self, backward_prefetch: object) -> None:
        layer_setting.check_offload(backward_prefetch)


class _Cell(_Operator):
    """A cell with the operators and cells of a tree."""

    def __init__(self, tree: Tree) -> None:
        self._cells = {name: _Cell(child) for name, child in tree.cells}
        for name in tree.operators:
            setattr(self, name, _Operator())

    def recompute(self, mode: bool = True, **_: object) -> None:  # noqa: FBT001, FBT002 - as above
        """Nothing is computed here."""

    def offload(self, backward_prefetch: object) -> None:
        """Checks its argument."""
        layer_setting.check_offload(backward_prefetch)

    def set_comm_fusion(self, number: int) -> None:
        """Nothing is fused here."""


def with_patterns(random: Random, inputs: RecomputeInputs) -> RecomputeInputs:
    """The case with patterns that mean something to the model."""
    patterns = _PATTERNS[inputs.legacy]

    def renamed(value: Any) -> Any:  # noqa: ANN401 - sound or not
        if isinstance(value, dict):
            return dict(zip(random.sample(patterns, len(value)), value.values(), strict=True))
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return random.sample(patterns, len(value))
        return value

    def renamed_swap(swap: SwapValues) -> SwapValues:
        entries = [swap.op_swap] if isinstance(swap.op_swap, dict) else swap.op_swap
        if isinstance(entries, list) and all(isinstance(entry, dict) and "op_name" in entry for entry in entries):
            entries = [{**entry, "op_name": random.choice(patterns)} for entry in entries]
        return swap._replace(op_swap=entries)

    values = RecomputeValues(*map(renamed, inputs.values))
    return inputs._replace(values=values, swap=renamed_swap(inputs.swap), core_swap=renamed_swap(inputs.core_swap))


def make_cells() -> tuple[Callable[[int], _Cell], list[tuple[LayerModel, int]]]:
    """What makes the layers of a model; the model, and how many layers it has, are put into the list."""
    current: list[tuple[LayerModel, int]] = []

    def make_layer(layer: int) -> _Cell:
        model, count = current[0]
        tree = model.tree(layer) if layer < count else model.ahead
        assert tree is not None
        return _Cell(tree)

    return make_layer, current


@pytest.mark.parametrize("version", VERSIONS)
def test_lines(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    missing = layer_setting.why_missing(version)
    if missing:
        pytest.skip(missing)
    make_layer, current = make_cells()
    oracle = layer_setting.Oracle(version, make_layer)
    random = Random(SEED)  # noqa: S311 - the same cases every time
    count = lines = stops = 0
    while count < CASES:
        inputs = with_patterns(random, random_case(random, version))
        model = random_model(random, inputs)
        current[:] = [(model, inputs.placed_layers)]
        plan = normalize(inputs)
        if plan.failure is not None or (inputs.reduced and inputs.mtp_layers):
            continue  # told elsewhere; the reduced class logs its lists once more between the layers
        outcome = oracle.ask(inputs, dict(zip(KEYS, copy.deepcopy(tuple(inputs.values)), strict=True)))
        stopped = find_failure(inputs, plan, model)
        if stopped is not None:
            assert stopped.failure is not None
            assert (stopped.failure.exception, stopped.failure.layer) == (outcome.exception, outcome.layer), inputs
            assert stopped.failure.text in {outcome.text, ""}
            stops += 1
            continue
        assert outcome.exception is None, (outcome.text, inputs)
        expected = outcome.log[len(plan.log) :]
        assert [*layer_lines(inputs, plan, model), *ahead_lines(inputs, plan, model)] == expected, inputs
        count += 1
        lines += len(expected)
    with capsys.disabled():
        print(f"\n{version}: {lines} lines of {count} plans, {stops} stops")  # noqa: T201 - the count is the point
    assert lines > count
