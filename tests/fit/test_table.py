"""Test the memory table of an invented job: it reproduces the true values, and predicts any plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import yaml

from ms_tune.dryrun.prepare import prepare_run
from ms_tune.dryrun.request import DryrunRequest, Setting
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.errors import UnsupportedError
from ms_tune.facts.query import data_folder
from ms_tune.fit.calibration_runs import (
    count_job_layers,
    plan_probes,
    probe_sizes,
    probes_of_first_chunk,
    probes_with_some_of_first_chunk,
    probes_with_some_recomputed,
)
from ms_tune.fit.costs import RelativeCosts, relative_costs, table_without_sizes
from ms_tune.fit.job import PlannedJob, full_first_lists, lists_of_plan, read_job, read_present_plan, uniform_lists
from ms_tune.fit.measured import StageMeasurements
from ms_tune.fit.table import build_table
from ms_tune.planning.costs import costs_of as in_arrays
from ms_tune.planning.table import IN_CELL, CostTable, check_table, plan_of
from tests.dryrun import configs
from tests.fit.world import MIB, World

if TYPE_CHECKING:
    from ms_tune.dialects.stage import StageLayerKind

KINDS = (RecomputeMode.NONE, RecomputeMode.FULL, RecomputeMode.COMM, RecomputeMode.SELECT)


TEMPLATES = sorted(data_folder("yaml_templates").glob("*/*.yaml"))


def job_in(config: Path) -> PlannedJob:
    """Return a shipped config as a job; skip a config whose stages have no layer numbers."""
    try:
        return read_job(DryrunRequest(config=config))
    except UnsupportedError as error:
        pytest.skip(str(error))


def job_of(folder: Path, stages: int = 4, chunks: int = 1, layers: int = 32, micro_batches: int = 8) -> PlannedJob:
    data = yaml.safe_load(yaml.safe_dump(configs.MINDSPEED))
    data["model_config"]["num_layers"] = layers
    data["parallel_config"] = {"pipeline_model_parallel_size": stages}
    if chunks > 1:
        data["parallel_config"]["virtual_pipeline_model_parallel_size"] = chunks
    data["dataset_config"]["micro_batch_num"] = micro_batches
    file = folder / "train.yaml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    return read_job(DryrunRequest(config=file))


def measured_in(world: World, job: PlannedJob, kinds: tuple[RecomputeMode, ...] = KINDS) -> StageMeasurements:
    model = count_job_layers(job)
    probes, notes = plan_probes(job, model, kinds)
    assert notes == []
    some = [world.some(job, probe) for probe in probes_with_some_recomputed(job)]
    first = [world.some(job, probe) for probe in probes_with_some_of_first_chunk(job)]
    return StageMeasurements([(one, world.figures(job, one)) for one in probes], model, some, first)


def recompute_first_chunk(
    measured: StageMeasurements, world: World, job: PlannedJob, stages: list[int] | None = None
) -> None:
    runs = [world.some(job, probe) for probe in probes_of_first_chunk(job, measured.model, stages)]
    measured.only_first_chunk = {run.stage: run for run in runs}


def make_table(world: World, job: PlannedJob, limit: int = 60 << 30) -> CostTable:
    measured = measured_in(world, job)
    return check_table(build_table(job, measured, RelativeCosts(), limit), "made up")


class TestTable:
    @pytest.mark.parametrize(("stages", "chunks"), [(2, 1), (4, 1), (8, 1), (4, 2), (2, 3)])
    def test_what_is_true_comes_out(self, tmp_path: Path, stages: int, chunks: int) -> None:
        world = World()
        layers = 4 * stages * chunks
        table = make_table(world, job_of(tmp_path, stages, chunks, layers, 2 * stages))
        (layer,) = table.layers
        assert (layer.name, layer.layer_count, layer.bytes) == ("dense", layers, world.lasting * MIB)
        for kind, kept in layer.recompute.items():
            assert (kept.activation_bytes, kept.once_bytes) == (
                world.activations[kind] * MIB,
                world.once.get(kind, 0) * MIB,
            )
        assert table.again is not None
        assert table.again.first_bytes == (0,) * stages
        assert table.again.layer_bytes == (0,) * table.cells
        assert (table.head.filled, table.tail.filled) == (stages > 1, stages > 1)  # as MindSpeed-Core-MS requires
        assert set(table.again.transient_bytes[:-1]) == {world.transient * MIB}
        assert layer.recompute[RecomputeMode.FULL].again_bytes == 0
        assert table.fixed_bytes(0) == world.anyhow[0] * MIB
        # The memory added at the end of the last stage's forward pass is inferred from its memory in addition to
        # weights.
        assert table.fixed_bytes(stages - 1) + table.tail.transient_bytes == (world.anyhow[2] + world.late) * MIB
        assert table.tail.transient_bytes >= world.late * MIB
        assert table.update is None

    @pytest.mark.parametrize("first", [0, 48])
    @pytest.mark.parametrize("left", [0, 134])
    def test_what_recomputed_layers_add_comes_out(self, tmp_path: Path, first: int, left: int) -> None:
        world = World(first=first, left=left)
        table = make_table(world, job_of(tmp_path, 4, 1, 32, 8))
        assert table.again is not None
        assert table.again.first_bytes == (first * MIB, 0, 0, 0)
        assert table.again.layer_bytes == (0, 0, 0, 0)
        (layer,) = table.layers
        full = layer.recompute[RecomputeMode.FULL]
        assert (full.activation_bytes, full.once_bytes) == (30 * MIB, -15 * MIB)
        assert full.again_bytes == left * MIB
        assert table.again.transient_bytes[:-1] == (world.transient * MIB,) * 3

    @pytest.mark.slow
    @pytest.mark.parametrize("left", [0, 134])
    @pytest.mark.parametrize("update", [0, 1100, 1400, 2500])
    @pytest.mark.parametrize("stages", [1, 2, 4, 6])
    def test_it_foretells_every_plan(self, tmp_path: Path, stages: int, update: int, left: int) -> None:
        world = World(update=update, left=left, first=48)
        job = job_of(tmp_path, stages, 1, 5 * stages, 2 * stages)
        table = make_table(world, job)
        assert (table.update is None) == (not update)
        costs, draw = in_arrays(table), np.random.default_rng(20261122)
        for _ in range(60):
            cells = random_cells(draw, table)
            plan = plan_of(table, cells)
            foretold = costs.peak_bytes(costs.state_of(cells)[None])[0]
            for stage in range(stages):
                true = world.peak(job, plan, stage)
                assert -2 * MIB <= foretold[stage] - true <= world.transient * MIB
                if not any(map(any, plan.recompute)):
                    assert abs(foretold[stage] - true) <= 2 * MIB

    @pytest.mark.parametrize("update", [0, 1400])
    def test_what_swap_keeps_moves_and_fetches_comes_out(self, update: int) -> None:
        world = World(update=update)
        job = read_job(DryrunRequest(config=data_folder("yaml_templates") / "mindformers" / "qwen3_32b.yaml"))
        measured = measured_in(world, job, (RecomputeMode.NONE, RecomputeMode.SWAP))
        table = build_table(job, measured, RelativeCosts(), 60 << 30)
        (layer,) = table.layers
        kept = layer.recompute[RecomputeMode.SWAP]
        assert (kept.activation_bytes, kept.swapped_bytes, kept.transient_bytes) == (40 * MIB, 230 * MIB, 280 * MIB)
        costs, draw = in_arrays(table), np.random.default_rng(20261123)
        for _ in range(40):
            # Equal chunks: the invented stage has one vector of micro-batches in flight.
            counts = draw.integers(0, 4, table.stages).tolist() * table.chunks
            cells = [{RecomputeMode.SWAP: count, RecomputeMode.NONE: 8 - count} for count in counts]
            foretold = costs.peak_bytes(costs.state_of(cells)[None])[0]
            for stage in range(table.stages):
                true = max(world.peaks(job, stage, cells[stage :: table.stages]).values())
                assert -2 * MIB <= foretold[stage] - true <= world.fetched * MIB

    def test_a_phase_whose_peak_becomes_another_moment_is_left_out(self, tmp_path: Path) -> None:
        # Seen in a static graph: with the fewest layers the forward pass peaks while the embedding's gradient is live.
        world, job = World(), job_of(tmp_path, 2, 1, 8, 4)
        model = count_job_layers(job)
        seen = []
        for one in plan_probes(job, model, KINDS)[0]:
            figures = world.figures(job, one)
            if (one.stage, one.layers) == (0, 2):
                figures = replace(figures, phase_persistent={**figures.phase_persistent, "forward": 4500 * MIB})
            seen.append((one, figures))
        measured = StageMeasurements(seen, model)
        (layer,) = build_table(job, measured, RelativeCosts(), 60 << 30).layers
        assert layer.bytes == world.lasting * MIB
        assert layer.recompute[RecomputeMode.NONE].activation_bytes == world.activations[RecomputeMode.NONE] * MIB


def random_cells(draw: np.random.Generator, table: CostTable) -> list[dict[RecomputeMode, int]]:
    counts = np.full(table.cells, table.layer_count // table.cells)
    for _ in range(table.cells):
        one, other = draw.integers(0, table.cells, 2)
        if counts[one] > 1:
            counts[one] -= 1
            counts[other] += 1
    found = []
    for count in counts.tolist():
        full = int(draw.integers(0, count + 1))
        comm = int(draw.integers(0, count - full + 1))
        known = {RecomputeMode.FULL: full, RecomputeMode.COMM: comm, RecomputeMode.NONE: count - full - comm}
        found.append({kind: known.get(kind, 0) for kind in IN_CELL})
    return found


class TestProbes:
    @pytest.mark.parametrize(("chunks", "whole"), [(1, 1), (2, 3)])
    def test_a_stage_with_too_few_layers_is_reported(self, chunks: int, whole: int) -> None:
        with pytest.raises(UnsupportedError) as caught:
            probe_sizes(chunks, whole, 2 * chunks)
        assert str(whole) in str(caught.value)

    @pytest.mark.parametrize(
        ("stages", "chunks", "each"), [(4, 1, 8), (2, 1, 5), (2, 1, 13), (2, 2, 3), (2, 2, 6), (3, 1, 4)]
    )
    def test_of_small_runs_one_and_two_layers_of_a_cell_are_recomputed(
        self, tmp_path: Path, stages: int, chunks: int, each: int
    ) -> None:
        job = job_of(tmp_path, stages, chunks, stages * chunks * each, 2 * stages)
        seen: dict[int, list[int]] = {}
        for probe in probes_with_some_recomputed(job):
            run = prepare_run(job.request._replace(stage=probe.stage, layers=probe.layers), probe.loaded)
            full = {kind.cell[0]: count for kind, count in run.kinds.items() if kind.recompute is RecomputeMode.FULL}
            assert len(set(full.values())) == 1
            assert sum(run.kinds.values()) == min(5, each) * chunks
            seen.setdefault(probe.stage, []).append(full[0])
        assert set(map(tuple, seen.values())) == {(1, 2)}

    @pytest.mark.slow
    @pytest.mark.parametrize("config", TEMPLATES, ids=lambda path: "/".join(path.parts[-2:]))
    def test_one_more_layer_is_one_of_those_that_most_layers_are(self, config: Path) -> None:
        """Otherwise the memory of a dense layer would be counted as that of a layer with experts."""
        job = job_in(config)
        model = count_job_layers(job)
        probes, _ = plan_probes(job, model, (RecomputeMode.NONE, RecomputeMode.FULL))
        runs: dict[tuple[LayerKind, RecomputeMode, int], list[Mapping[StageLayerKind, int]]] = {}
        for one in probes:
            cut = job.request._replace(stage=one.stage, layers=one.layers)
            kinds = prepare_run(cut, one.loaded).layer_counts
            runs.setdefault((one.make, one.recompute, one.stage), []).append(kinds)
        compared = 0
        for (make, _, _), found in runs.items():
            for few, more in pairwise(found):
                added = {kind.make for kind, count in more.items() if count > few.get(kind, 0)}
                assert added == {make}
                compared += 1
        assert compared >= min(3, job.stages)

    @pytest.mark.slow
    @pytest.mark.parametrize("config", TEMPLATES, ids=lambda path: "/".join(path.parts[-2:]))
    def test_whatever_they_recompute_small_runs_have_the_same_layers(self, config: Path) -> None:
        """Patterns depend on the parts of a layer: made for other dense layers, they would separate equal layers."""
        job = job_in(config)
        kinds = (RecomputeMode.NONE, RecomputeMode.FULL, RecomputeMode.SELECT, RecomputeMode.COMM, RecomputeMode.BOTH)
        made: dict[tuple[LayerKind, int, int], set[tuple[tuple[tuple[int, LayerKind], int], ...]]] = {}
        probes, _ = plan_probes(job, count_job_layers(job), kinds)
        for one in probes:
            cut = job.request._replace(stage=one.stage, layers=one.layers)
            cells = Counter[tuple[int, LayerKind]]()
            for kind, count in prepare_run(cut, one.loaded).kinds.items():
                cells[kind.cell] += count
            made.setdefault((one.make, one.stage, one.layers), set()).add(tuple(sorted(cells.items())))
        assert [key for key, several in made.items() if len(several) > 1] == []

    @pytest.mark.slow
    @pytest.mark.parametrize("config", TEMPLATES, ids=lambda path: "/".join(path.parts[-2:]))
    def test_layers_stay_where_they_are(self, config: Path) -> None:
        """Even if cells have different numbers of layers: every run uses the job's own placement."""
        job = job_in(config)
        tried = [uniform_lists(job.placement, kind) for kind in ("none", "full")]
        tried.append(full_first_lists(job.placement, [[min(1, count) for count in row] for row in job.placement]))
        for lists in tried:
            assert read_job(job.request, job.with_lists(lists)).placement == job.placement
        plan = read_present_plan(job, table_without_sizes(job, RelativeCosts()))
        if plan is not None:
            again = read_job(job.request, job.with_lists(lists_of_plan(job, plan)))
            assert (again.placement, again.now.layers) == (job.placement, job.now.layers)


class TestStaticGraph:
    """Compiling takes time for each layer of each micro-batch: small runs have as few of both as the measurement allows."""

    @pytest.fixture
    def job(self) -> PlannedJob:
        return read_job(DryrunRequest(config=data_folder("yaml_templates") / "mindformers" / "qwen3_32b.yaml"))

    def test_few_layers_and_micro_batches(self, job: PlannedJob) -> None:
        assert (job.stages, job.chunks, job.first.pipeline.micro_batches) == (4, 2, 16)
        model = count_job_layers(job)
        probes, _ = plan_probes(job, model, KINDS)
        runs = probes + probes_of_first_chunk(job, model)
        assert probes_with_some_recomputed(job) == []
        assert {probe.layers for probe in runs} == {2, 4}
        assert {probe.loaded.source.get(("parallel_config", "micro_batch_num")) for probe in runs} == {12}
        first = prepare_run(job.request._replace(stage=0, layers=2), runs[0].loaded)
        assert first.in_flight == job.first.in_flight == (7, 4)

    def test_few_runs_where_layers_are_alike(self, job: PlannedJob) -> None:
        model, kinds = count_job_layers(job), (RecomputeMode.NONE, RecomputeMode.FULL)
        probes, _ = plan_probes(job, model, kinds)
        counts = {kind: Counter(one.stage for one in probes if one.recompute is kind) for kind in kinds}
        assert counts == {RecomputeMode.NONE: {0: 2, 1: 2, 2: 1, 3: 2}, RecomputeMode.FULL: {0: 2, 3: 1}}

    def test_a_kind_that_recomputes_some_is_run_on_one_stage_and_shows_of_all(self, job: PlannedJob) -> None:
        world, model = (
            World(once={RecomputeMode.NONE: 70, RecomputeMode.COMM: 70, RecomputeMode.BOTH: 70}),
            count_job_layers(job),
        )
        kinds = (RecomputeMode.NONE, RecomputeMode.COMM, RecomputeMode.BOTH, RecomputeMode.FULL)
        probes, _ = plan_probes(job, model, kinds)
        stages = {kind: {one.stage for one in probes if one.recompute is kind} for kind in kinds}
        assert stages[RecomputeMode.COMM] == stages[RecomputeMode.BOTH] == {0}
        assert stages[RecomputeMode.FULL] == {0, 3}  # the run of the first chunk shows the additional memory between
        measured = StageMeasurements([(one, world.figures(job, one)) for one in probes], model)
        for kind in (RecomputeMode.COMM, RecomputeMode.BOTH):
            found = measured.layer_bytes(model.main, kind)
            assert found is not None
            assert [found.persistent, found.activations, found.once_bytes] == [
                Fraction(size * MIB) for size in (1000, 250, 70)
            ]

    def test_an_end_may_be_without_layers(self, job: PlannedJob) -> None:
        table = build_table(job, measured_in(World(), job), RelativeCosts(), 60 << 30)
        assert (table.head.filled, table.tail.filled) == (False, False)

    @pytest.mark.parametrize("alone", [60, 390])
    def test_what_comes_on_top_of_a_first_chunk_is_distinguished(self, job: PlannedJob, alone: int) -> None:
        world = World(alone=alone)
        measured = measured_in(world, job)
        recompute_first_chunk(measured, world, job)
        table = check_table(build_table(job, measured, RelativeCosts(), 60 << 30), "made up")
        assert table.again is not None
        assert table.again.transient_bytes[:3] == (alone * MIB,) * 3
        assert table.again.transient_bytes[4:7] == (world.transient * MIB,) * 3
        costs = in_arrays(table)
        for full in ([8, 0], [5, 0], [8, 3], [8, 8]):
            cells = [{RecomputeMode.FULL: count, RecomputeMode.NONE: 8 - count} for count in full for _ in range(4)]
            foretold = costs.peak_bytes(costs.state_of(cells)[None])[0]
            for stage in range(2):
                true = max(world.peaks(job, stage, [cells[stage], cells[4 + stage]]).values())
                assert foretold[stage] == pytest.approx(true, abs=2 * MIB)

    def test_what_comes_on_top_in_the_middle_is_reported_by_one_run(self, job: PlannedJob) -> None:
        world = World(alone=390, late=200)
        measured = measured_in(world, job)
        recompute_first_chunk(measured, world, job, [1])
        table = check_table(build_table(job, measured, RelativeCosts(), 60 << 30), "made up")
        assert (
            table.layers[0].recompute[RecomputeMode.FULL].activation_bytes
            == world.activations[RecomputeMode.FULL] * MIB
        )
        assert table.again is not None
        assert table.again.transient_bytes[:3] == table.again.transient_bytes[4:7] == (390 * MIB,) * 3


class TestCosts:
    def test_llama_2_7b(self) -> None:
        job = read_job(DryrunRequest(config=data_folder("yaml_templates") / "mindspeed_ms" / "llama2_7b.yaml"))
        hidden, inner, tokens, words = 4096, 11008, 4096, 32000
        layer = 2 * (4 * hidden**2 + 3 * hidden * inner + 2 * tokens * hidden)
        found = relative_costs(job)
        assert found.known
        assert (found.dense, found.experts) == (1.0, 1.0)
        assert found.head == pytest.approx(2 * hidden * words / layer)


def test_what_predicts_further_tokens_takes_its_time_on_the_last_stage() -> None:
    config = data_folder("yaml_templates") / "mindformers_pynative" / "deepseek3_1b_moe.yaml"
    with_it = relative_costs(read_job(DryrunRequest(config=config, devices=8)))
    without = relative_costs(
        read_job(
            DryrunRequest(config=config, devices=8, settings=(Setting(("model", "num_nextn_predict_layers"), "0"),))
        )
    )
    # A layer with experts and the same logits again, and a projection of two widths to one.
    assert with_it.head > 2 * without.head + without.experts
    assert with_it.head < 2 * without.head + 1.5 * without.experts
    assert (with_it.dense, with_it.experts) == (without.dense, without.experts)
