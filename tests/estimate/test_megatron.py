"""Bytes of a Megatron rank by theory: 18 a parameter, or 6 + 12 / ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ms_tune.estimate.megatron import MegatronModel

MODEL = MegatronModel(2000, 1000, 0, 4, 2, False, True, True, "adam", False)  # noqa: FBT003 - in the order of the class
FACTS: dict[str, object] = {
    "weights": 2000,
    "trained": 1000,
    "experts": 0,
    "data": 4,
    "expert_data": 2,
    "distributed": False,
    "float32_gradients": True,
    "mixed": True,
    "optimizer": "adam",
    "reused": False,
}


def test_eighteen_bytes_a_parameter() -> None:
    assert MegatronModel.told(FACTS) == MODEL
    assert MODEL.theory() == {"weights": 2000, "gradients": 4000, "optimizer_state": 12000}


def test_the_distributed_optimizer_shares_its_state_out() -> None:
    shared = replace(MODEL, distributed=True)
    assert sum(shared.theory().values()) == (6 + 12 / 4) * 1000
    assert replace(shared, experts=600).theory()["optimizer_state"] == 12 * (100 + 300)


def test_float32_has_no_copy_and_what_is_not_trained_has_nothing() -> None:
    single = replace(MODEL, weights=4000, mixed=False, float32_gradients=False)
    assert single.theory() == {"weights": 4000, "gradients": 4000, "optimizer_state": 8000}
    assert replace(MODEL, trained=10).theory() == {"weights": 2000, "gradients": 40, "optimizer_state": 120}
    assert replace(MODEL, float32_gradients=False).theory()["gradients"] == 2000


def test_what_theory_does_not_know_is_left_out() -> None:
    assert set(replace(MODEL, optimizer="sgd").theory()) == {"weights", "gradients"}
    assert set(replace(MODEL, reused=True).theory()) == {"gradients"}


@pytest.mark.parametrize(
    "change",
    [{"data": 0}, {"weights": -1}, {"trained": "many"}, {"experts": 2**60}, {"expert_data": True}, {"weights": None}],
    ids=str,
)
def test_what_cannot_be_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r".*"):
        MegatronModel.told({**FACTS, **change})
