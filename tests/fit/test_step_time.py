"""Test predicted steps against published runs, published formulas, and the schedule of all micro-batches."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.errors import ConfigError
from ms_tune.estimate.flops import Attention, Widths
from ms_tune.estimate.memory import RankShare
from ms_tune.estimate.step_time import (
    PassTimes,
    Software,
    _Clock,
    end_times,
    gather_seconds,
    group_bandwidth,
    layer_times,
    reduce_seconds,
    send_seconds,
)
from ms_tune.facts.devices import Speed, find_speed
from ms_tune.fit.predict import calibrate, cluster_of, predict_plan
from ms_tune.fit.step_time import StepModel, _pipeline_seconds, few_micro_batches
from ms_tune.planning.costs import graph_of
from ms_tune.planning.layouts import Layout
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.table import CostTable
from tests.fit.test_table import job_of
from tests.published_steps import published_steps


def speed(name: str = "A100") -> Speed:
    """Return a known device."""
    found = find_speed(name)
    assert found is not None
    return found


@pytest.mark.slow
def test_published_steps_that_did_not_calibrate_the_model_are_predicted() -> None:
    errors: dict[str, list[float]] = defaultdict(list)
    ranks: dict[tuple[str, int, int], list[tuple[float, float]]] = defaultdict(list)
    for one in published_steps():
        values, seconds = one.values, one.predict().seconds
        if not one.fitted:
            errors[values["device"]].append(abs(seconds / one.seconds - 1))
        if values["source"] == "layouts":
            ranks[values["model"], values["seq"], values["devices"]].append((one.seconds, seconds))
    assert min(map(len, errors.values())) > 15
    for device, found in errors.items():
        assert median(found) < speed(device).error + 0.005  # as told to users, in whole percent
    stats: Any = pytest.importorskip("scipy.stats")
    orders = [float(stats.spearmanr(*zip(*pairs, strict=True))[0]) for pairs in ranks.values()]
    assert min(orders) > 0.75
    assert median(orders) > 0.88


@pytest.mark.parametrize(
    ("sequence", "again", "forward", "backward"),
    [
        (False, RecomputeMode.NONE, 7.7, 11.9),
        (True, RecomputeMode.NONE, 7.2, 11.8),
        (False, RecomputeMode.SELECT, 7.7, 13.2),
        (False, RecomputeMode.FULL, 7.7, 19.5),
    ],
)
def test_a_layer_of_22_billion_parameters(
    *, sequence: bool, again: RecomputeMode, forward: float, backward: float
) -> None:
    """Korthikanti et al. (2022), table 4, in milliseconds: A100, micro-batch 4, TP 8."""
    widths = Widths(6144, 2048, 51_200, Attention(64, 64, 96, 96), 24_576, gated=False)
    share = RankShare(4 * 2048, 8, sequence)
    found = layer_times(widths, share, speed(), Software(flash=False), experts=False)
    assert 1000 * found.forward == pytest.approx(forward, rel=0.1)
    assert 1000 * (found.backward + found.again[again]) == pytest.approx(backward, rel=0.25)


def test_mfu_counts_the_operations_of_the_model_alone() -> None:
    """Narayanan et al. (2021), equation 3, without recomputation: 72 B s l h^2 (1 + s / 6h + V / 12lh)."""
    hidden, layers, words, tokens = 12_288, 96, 51_200, 2048
    widths = Widths(hidden, tokens, words, Attention(96, 96, 128, 128), 4 * hidden, gated=False)
    layout = Layout(8, 12, 1, 1, 1, 1, 4, 64)
    cells = [{RecomputeMode.FULL: 8.0}] * 12
    model = StepModel(widths, [LayerKind.DENSE] * layers, speed())
    found = model.predict(layout, Schedule.ONE_FORWARD_ONE_BACKWARD, cells, Software(), sequence=True)
    flops = 72 * 256 * tokens * layers * hidden**2 * (1 + tokens / (6 * hidden) + words / (12 * layers * hidden))
    assert found.mfu == pytest.approx(flops / found.seconds / (384 * 312e12))
    assert found.tokens_per_second == pytest.approx(256 * tokens / found.seconds / 384)


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_weights_that_are_gathered_take_as_long_as_the_work_next_to_them_or_the_links(chunks: int) -> None:
    widths = Widths(8192, 4096, 32000, Attention(64, 64, 128, 128), 28672, gated=True)
    layout = Layout(data=4, tensor=1, pipeline=4, chunks=chunks, micro_batches=8)
    cells = [{RecomputeMode.NONE: 8 // chunks} for _ in range(4 * chunks)]
    schedule = Schedule.INTERLEAVED if chunks > 1 else Schedule.ONE_FORWARD_ONE_BACKWARD
    shares = (Software(shards=1, overlaps=True), Software(shards=3, overlaps=True))

    def steps(device: Speed) -> list[float]:
        model = StepModel(widths, [LayerKind.DENSE] * 32, device)
        return [model.predict(layout, schedule, cells, one, sequence=False).seconds for one in shares]

    fast = speed()._replace(link_gbs=1e6, between_gbs=1e6, hop_us=1e-9)
    assert steps(fast)[0] == pytest.approx(steps(fast)[1], rel=1e-3)  # hidden by the passes
    slow = speed()._replace(link_gbs=1e-3, between_gbs=1e-3)
    gathered = 2 * (32 / 4) * (4 * 8192**2 + 3 * 8192 * 28672) * 3 / 4 / group_bandwidth(slow, 4, 1)
    assert steps(slow)[1] > 0.99 * 8 * 3 * gathered  # each micro-batch waits for one stage's weights three times


def test_collectives_take_the_time_of_a_ring() -> None:
    plain = speed()._replace(link=1.0, between=1.0, hop_us=0.0)
    gib = 2.0**30
    assert gather_seconds(plain, gib, 8, 1) == pytest.approx(gib * 7 / 8 / 300e9)
    assert reduce_seconds(plain, gib, 16, 8) == pytest.approx(2 * gib * 15 / 16 / 25e9)  # one rank a node
    assert group_bandwidth(plain, 16, 2) == pytest.approx(4 * 25e9)  # four ranks a node, and their adapters
    assert gather_seconds(plain, gib, 1, 1) == 0.0
    assert send_seconds(plain, gib, 8) == pytest.approx(gib / 25e9)
    mesh = plain._replace(mesh=True, link_gbs=196.0)
    assert group_bandwidth(mesh, 2, 1) == pytest.approx(28e9)  # one of seven links
    assert group_bandwidth(mesh, 8, 1) == pytest.approx(196e9)


def test_the_optimizer_and_the_sums_of_gradients_follow_the_passes() -> None:
    plain = speed()._replace(link=1.0, hop_us=0.0, memory=1.0, launch_us=0.0)
    share = RankShare(2048, 1, sequence=False, data=8)
    passes = PassTimes(0.01, 0.02)
    whole = end_times(1e9, share, plain, Software(shards=0))
    assert whole.after(passes, Software()) == pytest.approx(2 * 4e9 * 7 / 8 / 300e9 + 30e9 / 2039e9)
    sharded = end_times(1e9, share, plain, Software(shards=1))
    apart = (4e9 * 7 / 8 / 300e9, 2e9 * 7 / 8 / 300e9)
    assert sharded.after(passes, Software(shards=1)) == pytest.approx(sum(apart) + 30e9 / 8 / 2039e9)
    assert sharded.after(passes, Software(shards=1, overlaps=True)) == pytest.approx(30e9 / 8 / 2039e9)


@pytest.mark.parametrize("chunks", [1, 2])
def test_long_steps_are_predicted_from_short_ones(chunks: int) -> None:
    """Compared with the schedule of all micro-batches, with unequal stages."""
    schedule = Schedule.INTERLEAVED if chunks > 1 else Schedule.ONE_FORWARD_ONE_BACKWARD
    passes = [PassTimes(1 + 0.1 * cell, 2 + 0.3 * (cell % 3)) for cell in range(4 * chunks)]
    for micro_batches in (32, 40, 44):
        layout = Layout(pipeline=4, chunks=chunks, micro_batches=micro_batches)
        assert few_micro_batches(layout) < micro_batches
        graph = graph_of(CostTable(4, chunks, micro_batches, 0, schedule, ()))
        durations = np.array([*(one.forward for one in passes), *(one.backward for one in passes)])
        found, _ = _pipeline_seconds(layout, schedule, passes, 0.0)
        assert found == pytest.approx(float(graph.step_ticks(durations[:, None])[0]), rel=0.01 if chunks > 1 else 1e-9)


def test_a_measured_step_scales_the_predictions(tmp_path: Path) -> None:
    job = job_of(tmp_path, 4, 1, 32, 8)
    plain, full = ([{kind: 8}] * 4 for kind in (RecomputeMode.NONE, RecomputeMode.FULL))
    cluster = cluster_of("910B3")
    before, more = (predict_plan(job, cells, cluster) for cells in (plain, full))
    assert before is not None
    assert more is not None
    measured = calibrate(job, plain, cluster, 2 * before.step.seconds)
    after = predict_plan(job, full, measured)
    assert after is not None
    assert after.step.seconds == pytest.approx(2 * more.step.seconds)
    assert after.step.mfu == pytest.approx(more.step.mfu / 2)


def test_a_cluster_file_replaces_what_it_names() -> None:
    found = cluster_of("910B4", ("tflops: 300\nbetween_gbs: 50\nlike: 910B1\n", "ours.yaml"))
    assert found is not None
    assert (found.speed.name, found.speed.tflops, found.speed.between_gbs) == ("ours.yaml", 300, 50)
    assert found.speed.memory_gbs == 1600
    assumed, unknown = cluster_of(None), cluster_of("910A")
    assert assumed is not None
    assert (assumed.speed.name, assumed.assumed, unknown) == ("910B2", True, None)


@pytest.mark.parametrize(
    "text", ["tflops: -1", "tflops: .inf", "speed: 3", "like: 910A", "like: 910B2", "tflops: fast"]
)
def test_a_cluster_file_with_a_mistake_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        cluster_of("910B2", (text, "ours.yaml"))


def test_a_product_takes_the_longer_of_its_operations_and_of_its_bytes() -> None:
    device = speed()
    clock, launch = _Clock(device), device.launch_us * 1e-6
    few = clock.product(1, 4096, 8192)  # both matrices and the result, two bytes an element
    size = 2 * (4096 + 4096 * 8192 + 8192)
    assert few - launch == pytest.approx(size / (device.memory_gbs * 1e9 * device.memory))
    many = clock.product(8192, 4096, 8192)
    assert many - launch == pytest.approx(2 * 8192 * 4096 * 8192 / (device.tflops * 1e12 * device.matmul))
    assert clock.product(8192, 4096, 8192, 3) - launch == pytest.approx(3 * (many - launch))
