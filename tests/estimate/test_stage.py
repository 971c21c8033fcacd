"""Test the memory of a stage, summed by hand, and the conclusions on both sides of each limit."""

from __future__ import annotations

import pytest

from ms_tune.estimate.memory import Activations, Estimate, LiveLayers, Outlook, StageEstimate, estimate_stage
from ms_tune.text import msg
from ms_tune.verdict.limit import Limit, device_of

KEPT = LiveLayers(Activations(90, 10, once=20), 2, full=False)
ALIKE = LiveLayers(Activations(300, 30), 3, full=True, layers=4)
LAST = LiveLayers(Activations(200, 20), 1, full=True)
WORKING = LiveLayers(Activations(200, 20, 60, 40), 1, full=True, layers=5)  # held once they were recomputed


@pytest.mark.parametrize(
    ("held", "logits", "expected"),
    [
        ([], 0, (0, 0, 0)),
        ([KEPT], 0, (0, 2 * 100, 0)),
        ([KEPT], 7, (0, 2 * 100, 7)),
        ([KEPT, ALIKE, LAST], 250, (5, 200 + 4 * 3 * 30 + 20, 300)),
        ([KEPT, LAST, ALIKE], 301, (5, 200 + 4 * 3 * 30 + 20, 301)),
        ([KEPT, WORKING], 301, (5, 200 + 5 * 20, 200 + 60 + 5 * 40)),
    ],
    ids=["nothing", "kept", "logits", "recomputed", "more logits", "backward pass"],
)
def test_a_stage_holds_what_its_layers_keep(
    held: list[LiveLayers], logits: int, expected: tuple[int, int, int]
) -> None:
    recomputed, kept, transient = expected
    found = estimate_stage(3, 5, 1000, held, logits)
    assert found == StageEstimate(3, 5, recomputed, 1000, kept, transient)
    assert found.peak_bytes == 1000 + kept + transient


def of(peak: int, *, lasting: int = 0, wide: bool = False, reserve: int = 500) -> Estimate:
    small = StageEstimate(0, 1, 0, lasting // 2, 0, 0)
    full = StageEstimate(1, 1, 0, lasting, peak - lasting, 0)
    ratios = (0.95, 2.5 if wide else 1.5)
    return Estimate((small, full, small), Limit(9500, device_of(), msg("verdict.chip.hint")), reserve, ratios)


def test_the_fullest_stage_counts_and_the_reserve_is_set_aside() -> None:
    found = of(10, lasting=4)
    assert (found.fullest.stage, found.fullest.peak_bytes, found.room_bytes) == (1, 10, 9000)
    assert (found.ratio_range, found._replace(less=True).ratio_range) == ((0.95, 1.5), (0.4, 1.5))


@pytest.mark.parametrize(
    ("estimate", "outlook"),
    [
        (of(10_001), Outlook.OVER),  # 0.95 of it is more than 9500
        (of(10_000), Outlook.UNSURE),
        (of(9_501, lasting=9_501), Outlook.OVER),  # persistent memory is more
        (of(9_500, lasting=9_500), Outlook.UNSURE),
        (of(6_000), Outlook.UNSURE),
        (of(5_999), Outlook.BELOW),  # 1.5 times as much is less than 9000
        (of(3_600, wide=True), Outlook.UNSURE),
        (of(3_599, wide=True), Outlook.BELOW),
    ],
)
def test_what_can_be_said_on_both_sides_of_each_bound(estimate: Estimate, outlook: Outlook) -> None:
    assert estimate.outlook is outlook
