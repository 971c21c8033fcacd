"""Test the outcomes of verdicts, and missing ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.text import Language, msg, render
from ms_tune.units import GIB, MIB
from ms_tune.verdict.limit import Cap, Limit, device_of, limit_of
from ms_tune.verdict.outcome import Fit, Need, UntracedNeeds, Verdict, judge, no_verdict, reserve_of

LIMIT = limit_of(device_of())  # 58,166 MiB, 3,889 MiB outside it
NOTHING = UntracedNeeds(simulated=False)
GAP = 454 * MIB


def judged(peak: int, footprint: int, outside: UntracedNeeds = NOTHING, limit: Limit = LIMIT) -> Verdict:
    return judge(Need.of_trace(peak, footprint), limit, outside)


class TestOutcomes:
    @pytest.mark.parametrize(
        ("peak", "footprint", "reserve", "fit", "sentence"),
        [
            (50000, 58166, 0, Fit.FITS, "verdict.fits"),
            (50000, 58167, 0, Fit.TIGHT, "verdict.tight.fragments"),
            (58166, 58166, 1, Fit.TIGHT, "verdict.tight.reserve"),
            (58000, 58100, 100, Fit.TIGHT, "verdict.tight.either"),
            (58166, 58200, 1, Fit.TIGHT, "verdict.tight.both"),
            (58167, 58167, 0, Fit.DOES_NOT_FIT, "verdict.does-not-fit"),
        ],
    )
    def test_what_decides(self, peak: int, footprint: int, reserve: int, fit: Fit, sentence: str) -> None:
        verdict = judged(peak * MIB, footprint * MIB, UntracedNeeds(simulated=False, reserve_bytes=reserve * MIB))
        assert (verdict.outcome, verdict.sentence.id) == (fit, sentence)
        assert verdict.spare_bytes == (58166 - footprint - reserve) * MIB
        for language in Language:
            assert render(verdict.sentence, language)

    def test_a_trace_without_its_footprint_is_judged_by_its_peak(self) -> None:
        assert judged(10 * GIB, 0).need == Need.of_trace(10 * GIB, 10 * GIB)

    @given(st.integers(0, 80 * GIB), st.integers(0, 8 * GIB), st.integers(0, 12), st.integers(0, 4 * GIB))
    def test_more_memory_never_makes_a_verdict_better(
        self, peak: int, fragments: int, communicators: int, reserve: int
    ) -> None:
        outside = UntracedNeeds(communicators=communicators, reserve_bytes=reserve)
        less = judged(peak, peak + fragments, outside)
        for more in (
            judged(peak + GIB, peak + GIB + fragments, outside),
            judged(peak, peak + fragments + GIB, outside),
            judged(peak, peak + fragments, UntracedNeeds(communicators=communicators + 9, reserve_bytes=reserve)),
        ):
            assert more.severity >= less.severity

    def test_only_what_fits_is_good_unless_tight_is_allowed(self) -> None:
        fits, tight, full = judged(GIB, GIB), judged(50 * GIB, 58 * GIB), judged(58 * GIB, 58 * GIB)
        none = no_verdict(msg("verdict.none.cut"))
        assert [one.is_good(allow_tight=False) for one in (fits, tight, full, none)] == [True, False, False, False]
        assert [one.is_good(allow_tight=True) for one in (fits, tight, full, none)] == [True, True, False, False]
        assert sorted((full, none, tight, fits), key=lambda one: one.severity) == [fits, tight, none, full]

    def test_a_doubt_takes_the_verdict_away_and_leaves_the_figures(self) -> None:
        verdict = judge(Need.of_trace(GIB, GIB), LIMIT, NOTHING, [msg("verdict.none.cut")])
        assert (verdict.outcome, verdict.need) == (None, Need.of_trace(GIB, GIB))
        assert "the trace is truncated" in render(verdict.sentence, Language.EN)


class TestReserve:
    @pytest.mark.parametrize(
        ("outside", "items"),
        [
            # 3,889 MiB are outside the pool: nine communicators of 400 MiB, and 289 MiB of a tenth.
            (UntracedNeeds(communicators=9), {"communication": 0, "workspaces": 454}),
            (UntracedNeeds(communicators=10), {"communication": 4000 - 3889, "workspaces": 454}),
            (UntracedNeeds(communicators=7, buffer_mib=400), {"communication": 7 * 800 - 3889, "workspaces": 454}),
            (UntracedNeeds(workspaces_traced=True, communicators=0), {"communication": 0}),
            (UntracedNeeds(simulated=False), {}),
            (UntracedNeeds(simulated=False, reserve_bytes=GIB), {"user": 1024}),
        ],
    )
    def test_what_is_reserved(self, outside: UntracedNeeds, items: dict[str, int]) -> None:
        assert {item.name: item.bytes // MIB for item in reserve_of(outside, LIMIT)} == items

    def test_a_larger_pool_leaves_less_next_to_it(self) -> None:
        limit = limit_of(device_of(), 58 * GIB, Cap.CONFIG)
        first = reserve_of(UntracedNeeds(communicators=7), limit)[0]
        assert (first.name, first.bytes // MIB) == ("communication", 2800 - (62055 - 59392))

    def test_what_nothing_shows_is_said_and_not_invented(self) -> None:
        first = reserve_of(UntracedNeeds(communicators=None), LIMIT)[0]
        assert (first.bytes, first.why.id) == (0, "verdict.reserve.communication.unknown")

    def test_the_line_says_which_groups_were_counted(self) -> None:
        few = UntracedNeeds().with_groups({"world": 8, "tp-0-1": 2, "by no file": 0})
        why = str(reserve_of(few, LIMIT)[0].why)
        assert why.endswith("Communicators and their ranks: world (8), tp-0-1 (2), by no file")
        assert "3 communicators x 400.0 MiB in the run" in why
        many = UntracedNeeds().with_groups(
            {f"389f7fbc8e058d61efa91d591e1dc5c5ad418fec3fb2{number:02}": 2 for number in range(14)}
        )
        item = reserve_of(many, LIMIT)[0]
        assert item.bytes == 14 * 400 * MIB - LIMIT.outside_pool_bytes
        assert str(item.why).endswith("389f7fbc8e05…ec3fb210 (2), 389f7fbc8e05…ec3fb211 (2), … +2")

    def test_groups_that_nothing_shows_are_not_counted(self) -> None:
        assert UntracedNeeds(communicators=3, groups=("a", "b", "c")).with_groups(None) == UntracedNeeds(
            communicators=None
        )
        assert UntracedNeeds().with_groups({}) == UntracedNeeds(communicators=0)

    def test_every_item_is_among_the_grounds(self) -> None:
        verdict = judged(GIB, GIB, UntracedNeeds(communicators=3, reserve_bytes=GIB))
        for language in Language:
            messages = "\n".join(render(ground, language) for ground in verdict.grounds)
            for text in ("1.0 GiB", "454.0 MiB", "1,024.0 MiB", "56.8 GiB"):
                assert text in messages


class TestDerived:
    def test_fragments_of_the_whole_are_a_range_and_the_upper_end_decides(self) -> None:
        need = Need.of_derived_stage(50 * GIB, [(10 * GIB, 11 * GIB), (20 * GIB, 21 * GIB)])
        # 1 GiB in both runs, 5 % of the larger one
        assert (need.least_footprint_bytes, need.footprint_bytes) == (50 * GIB, int(52.5 * GIB))
        assert "5.0%" in render(need.source, Language.EN)

    def test_runs_that_show_no_footprint_add_nothing(self) -> None:
        assert Need.of_derived_stage(50 * GIB, [(10 * GIB, 0)]).footprint_bytes == 50 * GIB
