"""Compare closed forms of layers' activations with dryruns of MindSpore 2.9.0, and the bytes between stages with figures by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ms_tune.enums import Dialect
from ms_tune.estimate.flops import Attention, Widths
from ms_tune.estimate.memory import (
    DYNAMIC_GRAPH,
    LEGACY_GRAPH,
    MINDSPEED_GRAPH,
    STATIC_GRAPH,
    Activations,
    KeptBytes,
    RankShare,
    exchanged_bytes,
    graph_of,
    head_bytes,
    layer_activations,
    logits_bytes,
    megatron_activations,
)
from ms_tune.facts.models import model_of

MIB = 2**20
LLAMA = Widths(4096, 4096, 32000, Attention(32, 32, 128, 128), 11008, gated=True)


def test_llama_2_7b_next_to_its_dryrun() -> None:
    """Two tensor-parallel ranks, sequence parallelism, one sample: 329.03 MiB were measured, 32.0 for a recomputed layer."""
    found = layer_activations(LLAMA, RankShare(4096, 2, sequence=True), MINDSPEED_GRAPH, experts=False)
    assert found.none / MIB == pytest.approx(329.03, rel=0.02)
    assert found.full == 32 * MIB


SMALL = Widths(8, 12, 11, Attention(4, 2, 3, 2), 10, gated=True, experts=4, chosen=3, expert=5, shared=6)
PLAIN = SMALL._replace(gated=False)
SPLIT = RankShare(12, 4, sequence=True, context=3, expert=2)
COPIED = SPLIT._replace(sequence=False)
ROW = 2 * 12 * 8  # a micro-batch between layers
FUSED_HEADS = (2 * 12 * (4 * (3 + 2) + 2 * (3 + 2)) + 64 * 12 * 4) // 4

# Blocks of a layer in traces of dryruns, in MiB: a sequence of 2,048 tokens, hidden size 1,280, ten heads of 128 and two groups,
# inner width 3,456, or latent attention and eight experts of 768, four chosen, and a shared one of 896; float32 parameters in
# static graphs.
DENSE = Widths(1280, 2048, 8000, Attention(10, 2, 128, 128), 3456, gated=True)
LATENT = DENSE._replace(
    attention=Attention(10, 10, 192, 128, 1536, 512, 64), experts=8, chosen=4, expert=768, shared=896
)
SOFTMAX, MLP, CASTS = 2 * 0.625, 4 * 13.5, 16.875 + 8.4375 + 4.375 + 3.125
EXPERTS = 24 + 12 + 4 * 3.5  # products of the chosen experts, and of the shared one
EXPERT_CASTS = 5.16 + 5.63 + 2.5 + 3.13 + 45 + 4.38 + 2.19
SINGLE = RankShare(2048, 1, sequence=False)


@pytest.mark.parametrize(
    ("widths", "share", "graph", "blocks"),
    [
        (DENSE, SINGLE, STATIC_GRAPH, 3 * 10 + 2 * 5 + 2 + 3 * 5 + 1 + 1 + SOFTMAX + MLP + CASTS),
        (
            *(DENSE, RankShare(2048, 2, sequence=True), STATIC_GRAPH),
            2 * 5 + 2 * 5 + (10 + 2 + 3 * 5 + 1 + 1 + SOFTMAX + MLP + CASTS) / 2,
        ),
        (DENSE, SINGLE, LEGACY_GRAPH, 4 * 5 + 3 * 5 + 1 + 1 + SOFTMAX + MLP + CASTS),
        (DENSE, SINGLE, DYNAMIC_GRAPH, 4 * 5 + 4 * 5 + 7 + 1 + 1 + SOFTMAX + MLP),
        (DENSE, RankShare(2048, 2, sequence=True), DYNAMIC_GRAPH, 4 * 2.5 + 2 * 5 + (4 * 5 + 9 + SOFTMAX + MLP) / 2),
        (DENSE, SINGLE, MINDSPEED_GRAPH, 6 * 5 + 4 * 5 + SOFTMAX + 27 + 13.5),
        (
            *(LATENT, SINGLE, STATIC_GRAPH),
            2 * 15 + 12 + 6 + 4 + 2 + 2 * 7.5 + 3 * 5 + SOFTMAX + 10 + 4 * 20 + EXPERTS + EXPERT_CASTS,
        ),
        (
            *(LATENT, RankShare(2048, 1, sequence=False, expert=2), DYNAMIC_GRAPH),
            4 * 5 + 8.25 + 6 + 2 + 2 * 7.5 + 3 * 5 + SOFTMAX + 10 + 2 * 20 + EXPERTS + 12,
        ),
    ],
    ids=[
        "static",
        "static, split",
        "legacy",
        "dynamic",
        "dynamic, split",
        "mindspeed",
        "latent, static",
        "latent, dynamic",
    ],
)
def test_a_layer_block_by_block(widths: Widths, share: RankShare, graph: KeptBytes, blocks: float) -> None:
    found = layer_activations(widths, share, graph, experts=bool(widths.experts))
    assert (found.none + found.once) / MIB == pytest.approx(blocks, rel=2e-3)


def test_a_layer_of_megatron_without_a_gate_and_with_a_shared_expert() -> None:
    for fused in (False, True):
        found = megatron_activations(PLAIN, SPLIT, experts=False, fused=fused)
        assert found == Activations(ROW + FUSED_HEADS + 2 * 12 * 10 * 2 // 4, ROW // 4)
    found = megatron_activations(SMALL, SPLIT, experts=True, fused=True)
    assert found.none == ROW + FUSED_HEADS + 2 * 12 * (3 * 5 + 6) * 3 // 4 + 2 * ROW * 3 // 4
    found = megatron_activations(SMALL, COPIED, experts=True, fused=False)
    assert found == Activations(4 * ROW + FUSED_HEADS + 2 * 12 * (3 * 5 + 6) * 4 // 4 + 2 * ROW * 3, ROW)


def test_logits() -> None:
    assert logits_bytes(SMALL, SPLIT) == 6 * 12 * 11 // 4
    gathered = 6 * 3 * 12 * 11  # of three ranks that share the sequence
    cast = 2 * 2 * 8 * 11 // 4
    assert head_bytes(SMALL, SPLIT, STATIC_GRAPH, 1, again=True) == (16 + 12) * 12 * 11 // 4 + cast
    assert head_bytes(SMALL, COPIED, STATIC_GRAPH, 1) == 2 * 16 * 12 * 11 // 4 + gathered + cast
    shared = SPLIT._replace(context=2, sequence=True)
    alone, several = (head_bytes(SMALL, shared._replace(data=ranks), STATIC_GRAPH, 0) for ranks in (1, 2))
    assert several - alone == exchanged_bytes(SMALL, shared._replace(data=2), STATIC_GRAPH) == 8 * 12 * 11 // 4
    assert RankShare(1, 2, sequence=False) == RankShare(1, 2, sequence=False, context=1, expert=1)


@pytest.mark.parametrize("dialect", [Dialect.MINDFORMERS, Dialect.MINDFORMERS_PYNATIVE])
@pytest.mark.parametrize("compresses", [False, True, None])
def test_a_compressed_mask_is_not_kept_by_each_layer(dialect: Dialect, *, compresses: bool | None) -> None:
    values = {"model_type": "qwen3", "num_hidden_layers": 4, "hidden_size": 8, "num_attention_heads": 2}
    values |= {} if compresses is None else {"use_attn_mask_compression": compresses}
    data = {"model": values if dialect is Dialect.MINDFORMERS_PYNATIVE else {"model_config": values}}
    graph = graph_of(model_of(SimpleNamespace(data=data), dialect, "2.1"), dialect, 1, shards=True)
    whole = DYNAMIC_GRAPH if dialect is Dialect.MINDFORMERS_PYNATIVE else STATIC_GRAPH
    assert whole.mask > 0
    assert graph.mask == (0 if compresses else whole.mask)
