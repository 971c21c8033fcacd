"""Events of a run that are found again in a larger one, a few of them out of order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ms_tune.pools.repeat_layers import match_events


def longest_common(one: str, other: str) -> int:
    """The length of the longest common subsequence, by the textbook's table."""
    row = [0] * (len(other) + 1)
    for letter in one:
        before = row
        row = [0]
        for place, candidate in enumerate(other):
            row.append(before[place] + 1 if letter == candidate else max(row[place], before[place + 1]))
    return row[-1]


@given(st.text("abcd", max_size=12), st.text("abcd", max_size=16), st.integers(0, 6))
def test_each_has_a_place_and_the_fewest_are_out_of_order(small: str, large: str, most: int) -> None:
    out_of_order = len(small) - longest_common(small, large)
    missing = any(small.count(letter) > large.count(letter) for letter in small)
    found = match_events(small, large, most)
    assert (found is None) == (missing or out_of_order > most)
    if found is not None:
        assert len(set(found)) == len(small)
        assert [large[place] for place in found] == list(small)


def test_what_keeps_its_order_is_found_as_early_as_it_can_be() -> None:
    assert match_events("abc", "aabbcc", 0) == [0, 2, 4]


def test_one_that_moved_is_found_where_it_is_nearest() -> None:
    assert match_events("abcxd", "xabcdx", 1) == [1, 2, 3, 5, 4]


def test_runs_beyond_all_bounds_are_not_compared() -> None:
    assert match_events(range(100_001), range(100_001), 1) is None
