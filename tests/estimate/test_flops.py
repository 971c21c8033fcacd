"""Test the operations of layers, of the head and of a prediction layer, on sizes so small that each product is computed here."""

from __future__ import annotations

import pytest

from ms_tune.estimate.flops import Attention, Widths, head_flops, layer_flops, prediction_flops, score_flops

PLAIN = Attention(heads=4, groups=2, head=3, value=2)
LATENT = Attention(heads=4, groups=4, head=5, value=2, query_rank=3, key_rank=4, rotary=2)
MODEL = Widths(6, 5, 11, PLAIN, 7, gated=False, experts=8, chosen=2, expert=5, shared=3)
# Per token: queries 6 x 12, keys and values 6 x (2 x 5), output 8 x 6; scores and their product 5 x 4 x 5.
PLAIN_FLOPS = 2 * (72 + 60 + 48 + 100)
# Queries through a rank of 3: 3 x (6 + 20); 6 x (4 + 2) for the keys' rank and the shared part, 4 x 4 x (3 + 2) from
# it.
LATENT_FLOPS = 2 * (78 + 36 + 80 + 48 + 140)
WIDE_QUERIES = 2 * (120 + 36 + 80 + 48 + 140)


@pytest.mark.parametrize(
    ("attention", "flops"),
    [(PLAIN, PLAIN_FLOPS), (LATENT, LATENT_FLOPS), (LATENT._replace(query_rank=0), WIDE_QUERIES)],
    ids=["plain", "latent", "latent with wide queries"],
)
def test_a_layer_is_its_attention_and_its_feed_forward_block(attention: Attention, flops: int) -> None:
    model = MODEL._replace(attention=attention)
    gated = model._replace(gated=True)
    assert layer_flops(model, experts=False) == flops + 2 * 2 * 6 * 7
    assert layer_flops(gated, experts=False) == flops + 2 * 3 * 6 * 7
    # Two experts of 5 and the shared one of 3; the router's 6 x 8.
    assert layer_flops(model, experts=True) == flops + 2 * 2 * 6 * 13 + 2 * 6 * 8
    assert layer_flops(gated, experts=True) == flops + 2 * 3 * 6 * 13 + 2 * 6 * 8


def test_scores_the_head_and_a_prediction() -> None:
    assert score_flops(MODEL) == 2 * 5 * 4 * 5
    assert score_flops(MODEL._replace(attention=LATENT)) == 2 * 5 * 4 * 7
    assert head_flops(MODEL) == 2 * 6 * 11
    assert prediction_flops(MODEL) == 2 * 12 * 6 + 2 * 6 * 11
