"""What the releases 1.6 to 2.1 do differently; the numbers are those that the releases' own classes gave."""

from __future__ import annotations

import pytest

from ms_tune.dialects import ENDLESS_LOOP
from ms_tune.dialects.mindformers.placement import RecomputeInputs, RecomputeValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.enums import RecomputeMode
from ms_tune.facts.query import VERSIONS

SMALL = RecomputeInputs(layers=8, stages=4)
CHUNKS = RecomputeInputs(layers=8, stages=2, interleave=True, interleave_num=2)


def failure(inputs: RecomputeInputs) -> str | None:
    found = normalize(inputs).failure
    return f"{found.exception}: {found.text}" if found else None


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_cell_and_a_single_one(version: str) -> None:
    old = version in {"1.6", "1.7"}
    hole = failure(SMALL._replace(version=version, offset=[1, -2, 1, 0]))
    assert hole == (None if old else "ValueError: Some middle stage has fewer than 1 layer. Offset must be ≥ -1.")
    single = failure(RecomputeInputs(layers=4, offset=5, version=version))
    assert (single is None) == (not old)


def test_less_than_nothing() -> None:
    inputs = RecomputeInputs(layers=8, stages=4, offset=[-3, 1, 1, 1], version="1.7")
    plan = normalize(inputs)
    assert plan.placement is not None
    assert plan.placement == ((-1, 3, 3, 3),)
    assert "cell-negative" in {problem.id for problem in plan.problems}
    full = normalize(inputs._replace(values=RecomputeValues(recompute=[1, 0, 0, 0])))
    assert full.failure is not None
    assert full.failure.exception == ENDLESS_LOOP


def test_zero_bubble_is_unknown_to_1_6() -> None:
    inputs = CHUNKS._replace(scheduler="zero_bubble_v", values=RecomputeValues(recompute=[[1, 0], [0, 1]]))
    new, old = normalize(inputs), normalize(inputs._replace(version="1.6"))
    assert [layer.stage for layer in new.layers] == [0, 0, 1, 1, 1, 1, 0, 0]
    assert [layer.stage for layer in old.layers] == [0, 0, 1, 1, 0, 0, 1, 1]


def test_1_6_writes_into_lists() -> None:
    values = RecomputeValues(select_recompute=[True, [1, 0]])
    assert failure(CHUNKS._replace(values=values)) is None
    assert failure(CHUNKS._replace(values=values, version="1.6")) == (
        "ValueError: Illegal input list for select_recompute: [array([2, 2], dtype=int32), [1, 0]]"
    )
    tuples = RecomputeValues(recompute=(True, 0, 0, 0))
    assert failure(SMALL._replace(values=tuples)) is None
    assert failure(SMALL._replace(values=tuples, version="1.6")) == (
        "TypeError: 'tuple' object does not support item assignment"
    )


def test_the_reduced_class_of_1_6() -> None:
    core = RecomputeInputs(
        layers=7,
        stages=4,
        mtp_layers=1,
        legacy=False,
        version="1.6",
        slice_activation=True,
        values=RecomputeValues(recompute=[1, 0, 0, 2], select_recompute={"a": True}, select_recompute_exclude=["a"]),
    )
    plan = normalize(core)
    assert plan.formative is not None
    assert plan.formative["select_recompute_exclude"] == {}
    assert [layer.recompute for layer in plan.layers] == [
        RecomputeMode.FULL if layer in {0, 6, 7} else RecomputeMode.SELECT for layer in range(8)
    ]
    assert not any("exclude" in line for line in plan.log)
    later = failure(core._replace(version="1.7", slice_activation=False))
    assert later is not None
    assert later.endswith("= 3")


def test_the_words_of_a_bad_pattern() -> None:
    values = RecomputeValues(select_recompute=["x"], select_recompute_exclude=["a("])
    assert failure(SMALL._replace(values=values)) == "regex.error: "
    assert failure(SMALL._replace(values=values, version="1.6")) == (
        "re.error: missing ), unterminated subpattern at position 1"
    )


def test_sequence_pipeline() -> None:
    inputs = SMALL._replace(legacy=False, sequence_splits=2)
    assert failure(inputs) == "ValueError: seq_split_num > 1, is not supported when use_legacy=False."
    assert failure(inputs._replace(version="1.6")) is None
