"""Compare the distribution of tokens over experts with an explicit table of every token."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dryrun.experts import shared_out


@given(tokens=st.integers(0, 500), local=st.integers(1, 6), ranks=st.integers(1, 6), data=st.data())
def test_no_token_is_lost_and_no_expert_gets_two_more_than_another(
    tokens: int, local: int, ranks: int, data: st.DataObject
) -> None:
    own, experts = data.draw(st.integers(0, ranks - 1)), local * ranks
    chosen = sorted(token % experts for token in range(tokens))  # the expert of every token, distributed in turn
    counts = [chosen.count(expert) for expert in range(experts)]
    ends, sent, received = shared_out(tokens, experts, ranks, own)
    assert sent == tuple(sum(counts[rank * local : (rank + 1) * local]) for rank in range(ranks))
    assert received == (sent[own],) * ranks
    assert ends == tuple(accumulate(ranks * count for count in counts[own * local : (own + 1) * local]))
    assert ends[-1] == sum(received)
