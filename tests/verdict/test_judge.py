"""Test verdicts, the limit that they compare with, and the record that a run leaves."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.errors import UsageError
from ms_tune.facts.devices import chips
from ms_tune.facts.query import load
from ms_tune.text import Language, msg, render
from ms_tune.units import GIB, MIB
from ms_tune.verdict.limit import Cap, Limit, device_of, limit_of
from ms_tune.verdict.outcome import Fit, Need, UntracedNeeds, Verdict, judge, no_verdict, reserve_of
from ms_tune.verdict.run_record import RankRecord, RunRecord, StageRun, from_json, to_json

LIMIT = limit_of(device_of())  # 58,166 MiB, 3,889 MiB outside it
NOTHING = UntracedNeeds(simulated=False)


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


def test_a_64_gb_card_gives_what_was_published_of_it_and_not_what_the_simulator_says() -> None:
    for device in (device_of(), device_of("910B2"), device_of("Ascend910B3"), device_of(None, 64 * GIB)):
        assert limit_of(device).bytes == 58166 * MIB


@pytest.mark.parametrize(("chip", "pool"), [("A3", 58466), ("ascend910_93", 58466), ("910B4", 27966), ("910a", 27966)])
def test_what_is_not_published_is_derived_and_says_so(chip: str, pool: int) -> None:
    limit = limit_of(device_of(chip))
    assert limit.bytes == pool * MIB
    for language, word in ((Language.EN, "derived"), (Language.ZH, "推算")):
        assert word in render(limit.source, language)


def test_every_chip_has_its_source_and_leaves_less_than_the_card_has() -> None:
    for chip in chips():
        assert chip.free_bytes < chip.card_bytes
        assert load("devices")["chips"][chip.name]["source"]
        for name in (chip.name, *chip.names):
            assert device_of(name).free_bytes == chip.free_bytes


def test_an_unknown_chip_is_refused_with_what_is_known() -> None:
    with pytest.raises(UsageError) as caught:
        device_of("910B9")
    assert "910B4" in str(caught.value)
    assert caught.value.hint is not None


def test_what_is_assumed_free_of_a_size_is_reported() -> None:
    for language in Language:
        assert "29.1 GiB" in render(limit_of(device_of(None, 32 * GIB)).source, language)
        assert "61.27" not in render(limit_of(device_of(None, 96 * GIB)).source, language)


def test_a_max_device_memory_wins_where_the_device_has_so_much() -> None:
    limit = limit_of(device_of(), 58 * GIB, Cap.CONFIG)  # above the pool's default, below the free memory
    assert (limit.bytes, limit.source.id) == (58 * GIB, "verdict.limit.config")
    assert limit.outside_pool_bytes == (62055 - 59392) * MIB
    assert limit_of(device_of(), 20 * GIB, Cap.SCRIPT).bytes == 20 * GIB


@pytest.mark.parametrize("cap", [Cap.CONFIG, Cap.FRAMEWORK, Cap.SCRIPT])
def test_a_max_device_memory_that_the_device_does_not_have_is_refused_as_mindspore_does(cap: Cap) -> None:
    with pytest.raises(UsageError) as caught:
        limit_of(device_of("910B4"), 58 * GIB, cap)
    assert caught.value.hint is not None
    assert "27GB" in render(caught.value.hint, Language.EN)
    with pytest.raises(UsageError):
        limit_of(device_of(), 62055 * MIB, cap)  # it must be below the free memory
    assert limit_of(device_of(), 62055 * MIB - 1, cap).bytes == 62055 * MIB - 1


def test_of_a_size_that_mindspore_does_not_know_of_the_chip_it_takes_no_notice() -> None:
    """As in ``AscendMemAdapter::GetDeviceMemSizeFromContext`` (MindSpore 2.7 to 2.10), regardless of the card."""
    pool = limit_of(device_of()).bytes
    limit = limit_of(device_of(), 100 * GIB, Cap.SCRIPT)
    assert (limit.bytes, limit.source.id) == (pool, "verdict.limit.unheeded")
    assert "100 GiB" in render(limit.source, Language.ZH)
    with pytest.raises(UsageError):
        limit_of(device_of(), 64 * GIB, Cap.SCRIPT)
    with pytest.raises(UsageError):
        limit_of(device_of(), 100 * GIB, Cap.CONFIG)  # written for another device
    assert limit_of(device_of("910A"), 33 * GIB, Cap.SCRIPT).source.id == "verdict.limit.unheeded"
    with pytest.raises(UsageError):
        limit_of(device_of("910B4"), 33 * GIB, Cap.SCRIPT)


@pytest.mark.parametrize("cap", [Cap.CONFIG, Cap.SCRIPT])
def test_1024_is_mindspores_word_for_none(cap: Cap) -> None:
    assert limit_of(device_of(), 1024 * GIB, cap) == limit_of(device_of())


def test_a_size_that_the_user_names_is_asked_of_no_device() -> None:
    limit = limit_of(device_of("910B4"), 100 * GIB, Cap.USER)
    assert (limit.bytes, limit.outside_pool_bytes) == (100 * GIB, 0)


FULL = RunRecord(
    "910B4",
    None,
    UntracedNeeds(reserve_bytes=7),
    {
        "rank_0": RankRecord(
            27 * GIB,
            Cap.FRAMEWORK,
            UntracedNeeds(
                workspaces_traced=True,
                communicators=5,
                groups=("a (2)", "b"),
                counted=False,
                buffer_mib=100,
                reserve_bytes=GIB,
            ),
            4,
            32,
            Need.of_derived_stage(50 * GIB, [(10, 11), (20, 21)]),
            (StageRun(4, Fraction(-55, 2), "rank_0"), StageRun(5, Fraction(57, 2), ".layers_5/rank_0/rank_0")),
            replayed=True,
        ),
        "rank_8": RankRecord(run_layers=4, stage_layers=32),
    },
    {
        "rank_0": msg("verdict.none", reason=msg("verdict.none.dropped", rows=7)),
        ".": msg("verdict.none.block", operator="MatMul", size="70 GiB", card="64 GiB"),
    },
)


def test_what_is_written_is_what_is_read() -> None:
    again = from_json(json.loads(json.dumps(to_json(FULL))))
    assert (again.chip, again.card_bytes, again.outside) == (FULL.chip, FULL.card_bytes, FULL.outside)
    first, before = again.ranks["rank_0"], FULL.ranks["rank_0"]
    assert (first.cap_bytes, first.cap, first.outside) == (before.cap_bytes, before.cap, before.outside)
    assert (first.run_layers, first.stage_layers) == (before.run_layers, before.stage_layers)
    assert first.stage_need is not None
    assert before.stage_need is not None
    assert first.stage_need.footprint_bytes == before.stage_need.footprint_bytes
    assert (first.stage_runs, first.replayed) == (before.stage_runs, True)
    assert again.ranks["rank_8"] == FULL.ranks["rank_8"]
    assert again.doubts == FULL.doubts


@pytest.mark.parametrize("folder", ["/etc", "../other/rank_0", "rank_0/..", "", 7])
def test_runs_outside_the_run_folder_are_not_followed(folder: object) -> None:
    content = json.loads(json.dumps(to_json(FULL)))
    content["ranks"]["rank_0"]["whole"]["runs"][1]["folder"] = folder
    assert from_json(content).ranks["rank_0"].stage_runs == ()


def test_a_doubt_is_about_a_folder_and_what_is_below_it() -> None:
    assert FULL.doubt_about(["rank_0/process_2", "rank_0"]) == FULL.doubts["rank_0"]
    assert FULL.doubt_about(["rank_3"]) == FULL.doubts["."]
    assert RunRecord(doubts={"rank_0": FULL.doubts["."]}).doubt_about(["rank_1/rank_0", "rank_1"]) is None


@pytest.mark.parametrize(
    "spoilt",
    [
        7,
        None,
        {"id": "no.such.text"},
        {"id": "verdict.none.dropped"},  # without its parameter
        {"id": "verdict.none.dropped", "params": {"rows": [1]}},
        {"id": "/etc/passwd", "params": {}},
    ],
)
def test_a_doubt_that_cannot_be_read_is_a_doubt(spoilt: object) -> None:
    read = from_json({"version": 1, "no_verdict": {"rank_0": spoilt}})
    assert read.doubts == {"rank_0": msg("verdict.none.unknown")}


def test_doubts_within_doubts_have_an_end() -> None:
    deep: dict[str, object] = {"id": "verdict.none.cut"}
    for _ in range(100):
        deep = {"id": "verdict.none", "params": {"reason": deep}}
    assert len(str(from_json({"version": 1, "no_verdict": {".": deep}}).doubts["."])) < 200


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(to_json(FULL))), inner, max_size=4)
    ),
)


@given(VALUES, st.dictionaries(st.sampled_from(list(to_json(FULL))), VALUES))
def test_a_spoilt_file_says_nothing(whole: Any, parts: dict[str, Any]) -> None:  # noqa: ANN401 - any JSON
    from_json(whole)
    from_json({"version": 1, **parts})
    from_json({"version": 1, "no_verdict": {"rank_0": whole, ".": {"id": "verdict.none", "params": parts}}})
    from_json({"version": 1, "ranks": {"rank_0": {**parts, "whole": whole}}})
    assert from_json({"chip": "910B"}) == RunRecord()


@pytest.mark.parametrize("key", ["schema_version", "version"])  # the second up to 0.2.0
def test_a_record_of_another_form_gives_no_verdict(key: str) -> None:
    assert from_json({key: 1, "chip": "910B"}).chip == "910B"
    assert str(from_json({key: 2, "chip": "910B"}).doubts["."]) == (
        "judged.json has schema_version 2, which this version of ms-tune does not support"
    )
