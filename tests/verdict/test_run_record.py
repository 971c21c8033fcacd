"""Test the record of a run, from which other commands get the same verdict."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.text import msg
from ms_tune.units import GIB
from ms_tune.verdict.limit import Cap
from ms_tune.verdict.outcome import Need, UntracedNeeds
from ms_tune.verdict.run_record import RankRecord, RunRecord, StageRun, from_json, to_json

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
