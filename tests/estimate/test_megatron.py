"""Test the theoretical bytes of a Megatron rank: 18 per parameter, or 6 + 12 / ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ms_tune.dialects.job_parts import (
    DType,
    Experts,
    LatentAttention,
    MicroBatches,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    Sharding,
    TrainingConfig,
)
from ms_tune.dialects.stage import Chunk, Stage, StageLayer
from ms_tune.errors import UnsupportedError
from ms_tune.estimate.flops import Attention, Widths
from ms_tune.estimate.megatron import MegatronModel, MegatronOptions, megatron_stage
from ms_tune.estimate.memory import Activations, RankShare, logits_bytes, megatron_activations
from ms_tune.estimate.persistent import stage_weights
from tests.estimate.test_persistent import shape, sizes

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
    assert MegatronModel.from_record(FACTS) == MODEL
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
    [
        {"data": 0},
        {"weights": -1},
        {"trained": "many"},
        {"experts": 2**50},
        {"expert_data": True},
        {"expert_data": 0},
        {"weights": None},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r".*"):
        MegatronModel.from_record({**FACTS, **change})


SHAPE = shape(**sizes(64, 8, 12, 4, 4, 2, 3), experts=Experts(4, 2, 6, shared_ffn_hidden_size=5))
WIDTHS = Widths(8, 4096, 64, Attention(4, 2, 3, 3), 12, gated=True, experts=4, chosen=2, expert=6, shared=5)
SHARE = RankShare(4096 * 3 // 2, 2, sequence=True, context=2, expert=4)
FUSED = MegatronOptions(fused=True)
LAST = Stage(1, 2, (Chunk((StageLayer(2), StageLayer(3, experts=True, full=True)), head=True),))
FIRST = Stage(0, 2, (Chunk((StageLayer(0),), embedding=True), Chunk((StageLayer(1, experts=True),))))


def job(model: ModelShape = SHAPE, shards: int | None = 4, optimizer: str = "adam") -> TrainingConfig:
    return TrainingConfig(
        model,
        Parallelism(2, 2, 2, 4, None, sequence=True),
        MicroBatches(3, 8),
        Precision(DType.BFLOAT16, mixed=True, gradients=DType.FLOAT32),
        Optimizer(optimizer, gradient_buffers=True, sharding=Sharding.OPTIMIZER, shards=shards),
    )


def activations_of(widths: Widths, *, experts: bool) -> Activations:
    return megatron_activations(widths, SHARE, experts=experts, fused=True)


@pytest.mark.parametrize(("shards", "ranks", "expert_ranks"), [(4, 4, 1), (None, 1, 1), (8, 8, 2), (16, 16, 4)])
def test_what_the_last_stage_holds(shards: int | None, ranks: int, expert_ranks: int) -> None:
    """A quarter as many ranks share an expert as share other weights: tensor-parallel ranks split experts too."""
    found = megatron_stage(job(shards=shards), LAST, [5], FUSED)
    counts = [0, 0]
    for weight in stage_weights(job(), LAST):
        counts[weight.experts] += weight.size
    state = -(-counts[0] // ranks) + -(-counts[1] // expert_ranks)
    assert found.lasting_bytes == (2 + 4) * sum(counts) + 12 * state
    assert found.activation_bytes == 5 * (
        activations_of(WIDTHS, experts=False).none + activations_of(WIDTHS, experts=True).full
    )
    assert found.transient_bytes == max(activations_of(WIDTHS, experts=True).none, logits_bytes(WIDTHS, SHARE))
    assert (found.stage, found.layers, found.recomputed) == (1, 2, 1)


def test_only_the_last_stage_has_logits_and_each_chunk_its_own_micro_batches() -> None:
    found = megatron_stage(job(), FIRST, [5, 3], FUSED)
    assert (
        found.activation_bytes
        == 5 * activations_of(WIDTHS, experts=False).none + 3 * activations_of(WIDTHS, experts=True).none
    )
    assert (found.stage, found.layers, found.recomputed, found.transient_bytes) == (0, 2, 0, 0)
    last = megatron_stage(
        job(), LAST._replace(chunks=(Chunk((StageLayer(3),), head=True),)), [1], FUSED._replace(fused=False)
    )
    assert last.transient_bytes == logits_bytes(WIDTHS, SHARE)
    assert last.activation_bytes == megatron_activations(WIDTHS, SHARE, experts=False, fused=False).none


def test_latent_attention_and_no_experts() -> None:
    model = SHAPE._replace(latent=LatentAttention(6, 5, 4, 2, 9), experts=None)
    widths = WIDTHS._replace(attention=Attention(4, 4, 4 + 2, 9), experts=0, chosen=0, expert=0, shared=0)
    found = megatron_stage(job(model), FIRST._replace(chunks=FIRST.chunks[:1]), [2], FUSED)
    assert found.activation_bytes == 2 * activations_of(widths, experts=False).none


def test_the_state_of_another_optimizer_is_not_known() -> None:
    with pytest.raises(UnsupportedError, match="--optimizer"):
        megatron_stage(job(optimizer="sgd"), LAST, [1], FUSED)
