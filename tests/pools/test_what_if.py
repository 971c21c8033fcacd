"""Test the footprint with other settings, the causes of the run's footprint, and the settings to write."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from ms_tune.pools.mindspore_pool import DEFAULT_SIZE, PAGE, SIMULATED_DEVICE, MindSporePool, MindSporeSettings, Vmm
from ms_tune.pools.pool import replay_workload
from ms_tune.pools.settings import infer_settings
from ms_tune.pools.what_if import (
    WASTE_LIMIT,
    Lines,
    TraceFacts,
    WhatIf,
    count_used_pages,
    free_after_last_use,
    recompute_layers,
    replay_change,
    shard_blocks,
    what_if,
    write_lines,
)
from ms_tune.pools.workload import Request, make_workload
from ms_tune.units import GIB, MIB
from tests.pools.recorded import recorded

QWEN_8B = "mindformers_qwen3_8b_dp2tp4pp4/rank_24"


@cache
def result_of(run: str, total: int | None = None) -> WhatIf:
    pool, work = recorded(run)
    return what_if(pool, infer_settings(work, pool), total)


def gibs(result: WhatIf, name: str) -> tuple[float, float, float]:
    outcome = next(outcome for outcome in result.outcomes if outcome.name == name)
    assert outcome.actual_bytes is not None
    assert outcome.reserved_bytes is not None
    return tuple(round(size / GIB, 3) for size in (outcome.used_bytes, outcome.actual_bytes, outcome.reserved_bytes))  # type: ignore[return-value]


@pytest.mark.slow
def test_the_table_of_a_large_run() -> None:
    """Last stage of Qwen3-8B; used and actual of the recorded row are MindSpore's own (16,371 and 17,398 MiB)."""
    result = result_of(QWEN_8B)
    assert gibs(result, "recorded") == gibs(result, "increase_size=2GB") == (15.987, 16.991, 17.0)
    assert gibs(result, "increase_size=1GB") == (15.987, 17.977, 18.0)
    assert gibs(result, "increase_size=8GB") == (15.987, 16.202, 17.0)
    assert gibs(result, "increase_size=32GB") == (15.987, 16.217, 33.0)
    assert gibs(result, "vmm")[1] == 16.217  # one unlimited unit: like units that are never exhausted
    assert (result.recorded_outcome.waste_share or 0) > WASTE_LIMIT
    assert result.best is not None
    assert result.best.name == "vmm"
    assert result.best_without_vmm is result.recorded_outcome


def test_each_setting_is_changed_alone_within_the_limit() -> None:
    result = result_of("packed/graph_set_memory", 3 * GIB)
    run = result.inferred.settings
    assert (run.init, run.increase) == (2 * GIB, 5 * GIB)
    tried = {outcome.name: outcome.settings for outcome in result.outcomes}
    expected = {
        "recorded": run,
        **dict.fromkeys(("vmm", "vmm floor"), replace(run, vmm=Vmm.ON, init=None, increase=None)),
        **{f"increase_size={size}GB": replace(run, increase=size * GIB) for size in (1, 2, 4, 8, 16, 32)},
        **{f"init_size={size}GB": replace(run, init=size * GIB) for size in (4, 8, 16, 32)},
        "small_pool": replace(run, small_pool=True),
    }
    limited = {name: replace(settings, total=3 * GIB, simulated=False) for name, settings in expected.items()}
    assert tried == {**limited, "recorded": run}
    assert [outcome.recorded for outcome in result.outcomes] == [True, *[False] * (len(tried) - 1)]
    assert {outcome.name for outcome in result.outcomes if not outcome.advisable} == {"vmm floor"}


def test_pages_at_the_peak_are_counted_once() -> None:
    work = make_workload([Request(512, 1, None), Request(512, 2, None), Request(2 * PAGE, 3, None), Request(512, 4, 5)])
    result = replay_workload(work, MindSporePool(MindSporeSettings(vmm=Vmm.ON)))
    assert count_used_pages(work, result) == 3
    gone = make_workload([Request(PAGE, 1, 2), Request(PAGE // 2, 3, None)])
    assert count_used_pages(gone, replay_workload(gone, MindSporePool(MindSporeSettings(vmm=Vmm.ON)))) == 1


class TestLines:
    def test_they_are_what_set_memory_and_mindformers_take(self) -> None:
        lines = write_lines(MindSporeSettings(init=2 * GIB, increase=4 * GIB, total=58 * GIB))
        assert lines.script == 'ms.runtime.set_memory(init_size="2GB", increase_size="4GB", max_size="58GB")'
        assert lines.config == 'context: {max_device_memory: "58GB", mempool_block_size: "4GB"}'
        assert lines.environment is None

    @pytest.mark.parametrize("size", [0.3, 1, 1.5, 2, 10, 16.25])
    def test_sizes_match_the_pattern_of_mindspore(self, size: float) -> None:
        """_MEMORY_PATTERN of mindspore/runtime/memory.py: digits, a point, GB."""
        script = write_lines(MindSporeSettings(init=2 * GIB, increase=int(size * GIB))).script or ""
        assert f'increase_size="{size}GB"' in script
        for written in re.findall(r'="([^"]*)"', script):
            assert re.fullmatch(r"[1-9][0-9]*(\.)?[0-9]*GB|0\.[0-9]*GB", written)

    def test_a_limit_that_is_no_whole_gib_is_mindspores_own(self) -> None:
        for total in (58 * GIB + 1, SIMULATED_DEVICE):
            lines = write_lines(MindSporeSettings(init=2 * GIB, increase=4 * GIB, total=total))
            assert lines.script == 'ms.runtime.set_memory(init_size="2GB", increase_size="4GB")'
            assert lines.config == 'context: {mempool_block_size: "4GB"}'

    def test_sizes_that_are_not_set_are_the_defaults(self) -> None:
        assert write_lines(MindSporeSettings(increase=4 * GIB)) == Lines(
            f'ms.runtime.set_memory(init_size="{DEFAULT_SIZE / GIB:g}GB", increase_size="4GB")', None, None
        )
        assert write_lines(MindSporeSettings(init=4 * GIB)) == Lines(
            f'ms.runtime.set_memory(init_size="4GB", increase_size="{DEFAULT_SIZE / GIB:g}GB")', None, None
        )
        for settings, options in (
            (MindSporeSettings(vmm=Vmm.ON), "enable_vmm:True"),
            (MindSporeSettings(small_pool=True), "enable_small_pool:True"),
        ):
            assert write_lines(settings) == Lines(None, None, f"export MS_ALLOC_CONF={options}")


class TestScenarios:
    """Two layers forward and backward, with weights and optimizer state."""

    REQUESTS = (
        Request(64 * MIB, 1, None, persistent=True),  # weight
        Request(128 * MIB, 2, None, persistent=True),  # adam
        Request(10 * MIB, 10, 60),  # layer 0, kept for backward
        Request(20 * MIB, 12, 60),  # layer 0, its output
        Request(10 * MIB, 20, 50),  # layer 1
        Request(20 * MIB, 22, 50),  # layer 1, its output
        Request(5 * MIB, 40, 45),  # backward of layer 1
        Request(5 * MIB, 55, 58),  # backward of layer 0
    )
    FACTS = TraceFacts(
        last_use=[None, None, 57, 20, 44, 30, 42, 56],
        content=["weights", "optimizer_state", *["activations"] * 4, "temporaries", "temporaries"],
        name=["layers.0.w", "adam_m.layers.0.w", "a", "b", "c", "d", "e", "f"],
        layer=["", "", "layers.0", "layers.0", "layers.1", "layers.1", "layers.1", "layers.0"],
        forward=[False, False, True, True, True, True, False, False],
        backward=[False, False, False, False, False, False, True, True],
    )
    WORK = make_workload(REQUESTS)

    def peak(self, requests: tuple[Request, ...]) -> int:
        ticks = {request.start for request in requests}
        return max(sum(r.size for r in requests if r.start <= t and (r.end is None or r.end > t)) for t in ticks)

    def test_freed_after_the_last_use(self) -> None:
        change = free_after_last_use(self.WORK, self.FACTS)
        assert [request.end for request in change.work.requests] == [None, None, 58, 21, 45, 31, 43, 57]
        assert change.changed == 6
        assert self.peak(change.work.requests) < self.peak(self.REQUESTS)

    def test_a_category_taken_away_or_sharded(self) -> None:
        gone = shard_blocks(self.WORK, self.FACTS, "optimizer_state", 0)
        assert (gone.name, gone.changed, len(gone.work.requests)) == ("remove", 1, 7)
        assert self.peak(gone.work.requests) == self.peak(self.REQUESTS) - 128 * MIB
        eighth = shard_blocks(self.WORK, self.FACTS, "optimizer_state", 8)
        assert (eighth.name, eighth.by_content, eighth.work.requests[1].size) == ("shard", True, 16 * MIB)
        odd = shard_blocks(self.WORK, self.FACTS, "optimizer_state", 3)
        assert odd.work.requests[1].size % 512 == 0
        assert 3 * odd.work.requests[1].size >= 128 * MIB

    def test_recomputed_activations_are_gone_between_forward_and_backward(self) -> None:
        change = recompute_layers(self.WORK, self.FACTS, "activations", {"layers.0"})
        lives = sorted((r.size, r.start, r.end) for r in change.work.requests if r.size in (10 * MIB, 20 * MIB))
        # Layer 0's inner activation leaves as layer 1 begins and is back as its backward pass does; its output stays.
        assert lives == [
            (10 * MIB, 10, 20),
            (10 * MIB, 20, 50),
            (10 * MIB, 55, 60),
            (20 * MIB, 12, 60),
            (20 * MIB, 22, 50),
        ]
        assert change.changed == 1

    def test_the_pool_of_the_run_serves_the_changed_workload(self) -> None:
        pool, work = recorded("packed/graph_set_memory")
        inferred = infer_settings(work, pool)
        rows = len(work.requests)
        nothing, no = [""] * rows, [False] * rows
        facts = TraceFacts([None] * rows, ["all"] * rows, nothing, nothing, no, no)
        same = replay_change(shard_blocks(inferred.work, facts, "all", 1), inferred, 60 * GIB)
        assert same.used_bytes == inferred.replay.used_peak
        half = replay_change(shard_blocks(inferred.work, facts, "all", 2), inferred, 60 * GIB)
        assert half.used_bytes < 0.51 * same.used_bytes
        assert half.fits
        assert not replay_change(shard_blocks(inferred.work, facts, "all", 1), inferred, GIB).fits
