"""Compare full stages, as weighted sums of smaller ones, with models whose peaks are known."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from ms_tune.dryrun.extrapolate import combine_figures, solve_weights

KINDS = ("dense", "dense, full recompute", "moe")
counts = st.dictionaries(st.sampled_from(KINDS), st.integers(0, 40), max_size=3)
sizes = st.integers(0, 10**12)


def total(layers: dict[str, int], base: int, each: dict[str, int]) -> int:
    return base + sum(count * each[kind] for kind, count in layers.items())


def test_one_size_shows_nothing_but_itself() -> None:
    assert solve_weights({"layer": 32}, [{"layer": 4}]) is None
    assert solve_weights({"layer": 4}, [{"layer": 4}]) == (Fraction(1),)


@given(counts, st.lists(counts, min_size=1, max_size=5), sizes, st.fixed_dictionaries(dict.fromkeys(KINDS, sizes)))
def test_whatever_is_a_sum_over_layers_is_derived_exactly(
    full: dict[str, int], runs: list[dict[str, int]], base: int, each: dict[str, int]
) -> None:
    found = solve_weights(full, runs)
    assume(found is not None)
    assert found is not None
    assert sum(found) == 1
    assert combine_figures([total(run, base, each) for run in runs], found) == total(full, base, each)


@given(st.lists(counts, min_size=1, max_size=4), st.data())
def test_a_weighted_sum_of_runs_is_always_found(runs: list[dict[str, int]], data: st.DataObject) -> None:
    last = data.draw(st.integers(1, 5))
    factors = [*(data.draw(st.integers(-3, 3)) for _ in runs[1:]), 0]
    factors[-1] = 1 - sum(factors[:-1])
    full = {kind: last * sum(f * run.get(kind, 0) for f, run in zip(factors, runs, strict=True)) for kind in KINDS}
    if last == 1:
        assert solve_weights(full, runs) is not None


def test_a_figure_is_never_below_zero() -> None:
    assert combine_figures([10, 2], (Fraction(-1), Fraction(2))) == 0
