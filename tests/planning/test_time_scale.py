"""Test seconds from a measured step, from measured layers, and from both; never from anything else."""

from __future__ import annotations

import json

import pytest

from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, UsageError
from ms_tune.planning.fit import time_of
from ms_tune.planning.time_scale import Clock, LayerTimes, parse_step, parse_times, read_times, with_times
from tests.planning.tables import CASE_E

NONE, FULL, COMM = RecomputeMode.NONE, RecomputeMode.FULL, RecomputeMode.COMM
TIMES = {"body": LayerTimes(10.0), "head": LayerTimes(4.0), "tail": LayerTimes(6.0)}


def test_what_a_measured_step_takes_next_to_its_measured_passes_stays() -> None:
    clock = Clock(12.0, TIMES)
    assert clock.seconds(8000.0, 10_000.0) == 10.0
    assert clock.seconds(10_000.0, 10_000.0) == 12.0
    with pytest.raises(UsageError, match=r"passes of 12\.5 s, more than the measured step of 12 s"):
        clock.check(has_present=True, reference=12_500.0)


def test_a_table_in_milliseconds() -> None:
    """Four equal stages: a pipeline of m micro-batches takes m + p - 1 times a stage's passes."""
    even = CASE_E._replace(head=CASE_E.head._replace(forward=0), tail=CASE_E.tail._replace(forward=0))
    table = with_times(even, {"body": LayerTimes(10.0, {NONE: 25.0})}, "t.json")
    assert table.layers[0].recompute == {
        NONE: CASE_E.layers[0].recompute[NONE]._replace(backward_extra=0.25),
        FULL: CASE_E.layers[0].recompute[FULL]._replace(backward_extra=0.75),
    }
    plain, full = [{NONE: 20}] * 4, [{FULL: 20}] * 4
    assert time_of(table, plain) == pytest.approx((8 + 3) * 20 * 35)
    # One forward pass more, which is the table's figure.
    assert time_of(table, full) == pytest.approx((8 + 3) * 20 * 45)
    own = with_times(even, {"body": LayerTimes(10.0, {NONE: 25.0, FULL: 34.0})}, "t.json")
    assert time_of(own, full) == pytest.approx((8 + 3) * 20 * 44)
    short = with_times(even, {"body": LayerTimes(10.0, {NONE: 15.0})}, "t.json")
    assert time_of(short, plain) == pytest.approx((8 + 3) * 20 * 25)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({"body": LayerTimes(1.0), "tail": LayerTimes(1.0)}, "missing measured times for: head"),
        ({**TIMES, "bodi": LayerTimes(1.0)}, "the table has no 'bodi' .did you mean: body."),
        ({**TIMES, "body": LayerTimes(1.0, {NONE: 2.0, FULL: 1.9})}, "is faster with recompute kind"),
    ],
)
def test_times_of_another_table_are_refused(times: dict[str, LayerTimes], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        with_times(CASE_E, times, "t.json")


@pytest.mark.parametrize(
    ("text", "seconds"), [("step=11.5s", 11.5), ("step=11500ms", 11.5), ("step = 2 min", 120.0), ("step=40us", 4e-5)]
)
def test_a_measured_step_is_read(text: str, seconds: float) -> None:
    assert parse_step(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "11.5s", "step=11.5", "step=0s", "step=-1s", "step=1e9s", "step=nan s", "step=99999999s", "steps=1s"]
)
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a step"):
        parse_step(text)


def test_times_are_read() -> None:
    inline = parse_times("dense=12.5/25, moe=0.02s/41ms,tail=3")
    assert inline == {
        "dense": LayerTimes(12.5, {NONE: 25.0}),
        "moe": LayerTimes(20.0, {NONE: 41.0}),
        "tail": LayerTimes(3.0),
    }
    text = json.dumps({"dense": {"forward": 12.5, "backward": {"none": 25, "full": 37}}, "tail": {"forward": 3}})
    assert read_times(text, "t.json") == {"dense": LayerTimes(12.5, {NONE: 25.0, FULL: 37.0}), "tail": LayerTimes(3.0)}


@pytest.mark.parametrize(
    "text", ["", "dense", "dense=", "=3", "dense=1,dense=2", "dense=0", "dense=1/", "dense=1e400", "dense=1/2/3"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        parse_times(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "must be an object with"),
        ("{}", "must be an object with"),
        ('{"dense": 3}', "dense: must be an object"),
        ('{"dense": {}}', "dense: forward is missing"),
        ('{"dense": {"forward": 0}}', "above zero"),
        ('{"dense": {"forward": 1, "backward": {"none": 0}}}', "above zero"),
        ('{"dense": {"forward": 1, "backward": {"half": 1}}}', "dense.backward: unknown key half"),
        ('{"dense": {"forward": -1}}', "dense.forward: -1 is not a number from 0"),
        ('{"dense": {"forward": 1e300}}', "dense.forward"),
    ],
)
def test_a_file_without_times_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_times(text, "t.json")
