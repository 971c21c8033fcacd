"""Compare complete logs of the dynamic graph of MindFormers 2.0 and 2.1, derived by hand from ``apply_recompute`` and ``apply_swap``."""

from __future__ import annotations

from typing import Any

import pytest

from ms_tune.dialects.mindformers_pynative.placement import PynativeInputs
from ms_tune.dialects.mindformers_pynative.recompute import normalize_pynative

MODULES = (
    *("self_attention", "self_attention.gather", "self_attention.core_attention"),
    *("mlp", "mlp.linear_fc1"),
)
RULER = "-" * 69


def log_of(version: str, **settings: Any) -> list[str]:  # noqa: ANN401 - of many types
    layers = range(settings["layers"] + settings.get("mtp_layers", 0))
    plan = normalize_pynative(PynativeInputs(version=version, modules=dict.fromkeys(layers, MODULES), **settings))
    assert plan.failure is None
    return list(plan.log)


# Four layers and a prediction layer on two stages: every stage logs its own layers, the last one also the prediction
# layer.
STAGES = {
    "layers": 4,
    "mtp_layers": 1,
    "stages": 2,
    "mode": "select",
    "full_layers": ["1"],
    "select_module": {"self_attention": ["0"], "self_attention.core_attention": ["2"], "mlp": ["4"]},
    "comm": True,
    "comm_module": {"self_attention.gather": ["2-3"]},
}


def test_recompute_of_every_kind_on_two_stages_in_2_0() -> None:
    assert log_of("2.0", exclude_op=["MatMul"], **STAGES) == [
        "Ops excluded from recompute (MUST_SAVE): ['MatMul']",
        "--- Final Select Recompute Configuration Map---",
        "layer0: self_attention",
        RULER,
        "--- Final Comm Select Recompute Configuration Map---",
        RULER,
        "Set select recompute at layer 0: self_attention",
        "Set full recompute at layer 1",
        "Ops excluded from recompute (MUST_SAVE): ['MatMul']",
        "--- Final Select Recompute Configuration Map---",
        "layer2: self_attention.core_attention",
        "layer4: mlp",
        RULER,
        "--- Final Comm Select Recompute Configuration Map---",
        "layer2: self_attention.gather",
        "layer3: self_attention.gather",
        RULER,
        "Set select recompute at layer 2: self_attention.core_attention",
        "Set select recompute at layer 4: mlp",
    ]


def test_recompute_of_every_kind_on_two_stages_in_2_1() -> None:
    assert log_of("2.1", exclude_op={"self_attention.gather": ["0"]}, **STAGES) == [
        "--- Final Recompute Configuration Map---",
        "layer0: self_attention",
        RULER,
        "--- Final ExcludeOp Configuration Map---",
        "layer0: self_attention.gather",
        RULER,
        "--- Final Comm Select Recompute Configuration Map---",
        RULER,
        "Set exclude recompute at layer 0: self_attention.gather",
        "Set select recompute at layer 0: self_attention",
        "Set full recompute at layer 1",
        "--- Final Recompute Configuration Map---",
        "layer2: self_attention.core_attention",
        "layer4: mlp",
        RULER,
        "--- Final ExcludeOp Configuration Map---",
        RULER,
        "--- Final Comm Select Recompute Configuration Map---",
        "layer2: self_attention.gather",
        "layer3: self_attention.gather",
        RULER,
        "Set select recompute at layer 2: self_attention.core_attention",
        "Set select recompute at layer 4: mlp",
    ]


def test_a_layer_of_prediction_needs_the_last_layer_in_the_last_cell() -> None:
    """If the last cell ends with another layer, there is no prediction layer after it."""
    settings = {"layers": 4, "mtp_layers": 1, "stages": 2, "layers_per_stage": ["2-3", "0-1"]}
    assert log_of("2.1", mode="full", full_layers=["0-4"], **settings) == [
        f"Set full recompute at layer {layer}" for layer in (2, 3, 0, 1)
    ]


@pytest.mark.parametrize(("version", "title"), [("2.0", "Select Swap"), ("2.1", "Swap")])
def test_swap_of_layers_and_of_modules(version: str, title: str) -> None:
    modules = [{"op_name": "mlp", "layers": ["2"]}]
    swap: dict[str, Any] = {"layers": 4, "mtp_layers": 1, "swap": True}
    layers = [{"layers": ["0"], "backward_prefetch": 1}]
    of_modules = [f"--- Final {title} Configuration Map---", "layer2: mlp", RULER]
    assert log_of(version, op_swap=modules, **swap) == [*of_modules, "Set select swap at layer 2: mlp"]
    assert log_of(version, layer_swap=layers, **swap) == ["Set layer swap at layer 0"]
    both = ["Set layer swap at layer 0", "Set select swap at layer 2: mlp"]
    assert log_of(version, op_swap=modules, layer_swap=layers, **swap) == [*of_modules, *both]


@pytest.mark.parametrize("exclude", [{"2.0": ["MatMul"]}, {"2.1": {"self_attention": ["0"]}}])
def test_communication_without_any_other_recompute(exclude: dict[str, Any]) -> None:
    """Only 2.0 logs what it would save if nothing is recomputed."""
    ((version, value),) = exclude.items()
    comm = {"comm": True, "comm_module": {"self_attention.gather": ["0"]}}
    of_comm = ["--- Final Comm Select Recompute Configuration Map---", "layer0: self_attention.gather", RULER]
    first = ["Ops excluded from recompute (MUST_SAVE): ['MatMul']"] if version == "2.0" else []
    assert log_of(version, layers=2, mode="None", exclude_op=value, full_layers=["1"], **comm) == [*first, *of_comm]


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_what_is_switched_off_is_not_logged(version: str) -> None:
    off = {
        "select_module": {"mlp": ["0"]},
        "comm_module": {"mlp": ["0"]},
        "op_swap": [{"op_name": "mlp", "layers": [0]}],
    }
    assert log_of(version, layers=2, full_layers=["0"], **off) == []
    assert log_of(version, layers=2, mode="full", full_layers=["1"], **off) == ["Set full recompute at layer 1"]
