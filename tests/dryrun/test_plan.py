"""Test which stages, ranks and numbers of layers run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dryrun.extrapolate import undominated_stages
from ms_tune.dryrun.plan import JobPlan, plan_job
from ms_tune.dryrun.prepare import load_config
from ms_tune.dryrun.request import DryrunRequest, StageChoice
from ms_tune.enums import RecomputeMode
from ms_tune.errors import UsageError
from ms_tune.facts.query import data_folder
from tests.dryrun.configs import MINDFORMERS, edited


@pytest.fixture(autouse=True)
def working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def planned(config: dict[str, Any] = MINDFORMERS, **more: Any) -> JobPlan:  # noqa: ANN401 - fields of DryrunRequest
    Path("config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    request = DryrunRequest(config=Path("config.yaml"), **more)
    return plan_job(request, load_config(request))


class TestStages:
    def test_every_stage_is_run_by_its_first_rank(self) -> None:
        job = planned(layers=2, extrapolate=False)
        # 4 stages of 4 model-parallel and 2 data-parallel ranks
        assert [(stage.run.stage, stage.run.rank) for stage in job.stages] == [(0, 0), (1, 8), (2, 16), (3, 24)]
        assert (job.pipeline_stages, job.skipped) == (4, ())

    def test_ranks_belong_to_stages(self) -> None:
        job = planned(layers=2, ranks=(0, 9, 31), extrapolate=False)
        assert [(stage.run.stage, stage.run.rank) for stage in job.stages] == [(0, 0), (1, 9), (3, 31)]

    @pytest.mark.parametrize("more", [{"stages": (4,)}, {"ranks": (32,)}])
    def test_what_the_job_does_not_have_is_reported(self, more: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match=r"4|32"):
            planned(layers=2, **more)

    def test_the_worst_is_among_first_and_last_where_all_are_alike(self) -> None:
        even = edited(MINDFORMERS, "model.model_config.offset", 0)
        job = planned(even, stages=StageChoice.WORST)
        assert [stage.run.stage for stage in job.stages] == [0, 3]
        assert job.skipped == (1, 2)

    def test_the_worst_stage_is_that_of_the_whole_model(self) -> None:
        # shrunk to two layers all stages are alike; the whole ones are not
        uneven = edited(MINDFORMERS, "model.model_config.offset", [0, 0, 1, -1])
        assert [s.run.stage for s in planned(uneven, stages=StageChoice.WORST, layers=2).stages] == [0, 2, 3]


class TestSizes:
    def test_a_shrunk_stage_is_run_in_two_sizes(self) -> None:
        (stage,) = planned(layers=4, stages=(1,)).stages
        assert [run.layers for run in stage.runs] == [4, 5]
        assert stage.full_layers == 16
        assert list(map(int, stage.factors)) == [-11, 12]

    def test_every_kind_of_layer_is_distinguished(self) -> None:
        mixed = edited(edited(MINDFORMERS, "model.model_config.offset", 0), "recompute_config.recompute", [5, 5, 5, 5])
        (stage,) = planned(mixed, layers=4, stages=(0,)).stages
        assert sum(stage.factors) == 1
        full = {"plain": 11, "recomputed": 5}
        made = dict.fromkeys(full, 0)
        for run, factor in zip(stage.runs, stage.factors, strict=True):
            for kind, count in run.kinds.items():
                made["recomputed" if kind.recompute is RecomputeMode.FULL else "plain"] += int(factor * count)
        assert made == full


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=6), st.data())
def test_no_stage_that_is_left_out_can_be_the_worst(counts: list[dict[str, int]], data: st.DataObject) -> None:
    """This applies to any needs per kind of layer, and any decrease of in-flight micro-batches from stage to stage."""
    each = {kind: data.draw(st.integers(0, 100)) for kind in "abc"}
    flights = sorted((data.draw(st.integers(1, 9)) for _ in counts), reverse=True)
    needs = [sum(each[kind] * count for kind, count in one.items()) * f for one, f in zip(counts, flights, strict=True)]
    kept = list(undominated_stages(counts))
    assert max(needs[stage] for stage in kept) == max(needs)
    assert len(counts) - 1 in kept


EVEN = edited(MINDFORMERS, "model.model_config.offset", 0)


class TestFewestLayers:
    def test_the_smallest_two_numbers_that_show_are_run(self) -> None:
        (stage, *_) = planned(EVEN, fewest_layers=True, stages=(0,)).stages
        assert [run.layers for run in stage.runs] == [2, 3]
        assert (stage.full_layers, stage.reason, sum(stage.factors)) == (16, None, 1)

    def test_a_stage_that_takes_no_fewer_that_way_is_run_whole(self) -> None:
        small = edited(EVEN, "model.model_config.num_hidden_layers", 20)
        for stage in planned(small, fewest_layers=True).stages:
            assert ([run.layers for run in stage.runs], stage.factors, stage.full_layers) == ([5], (), 5)

    def test_more_layers_than_the_stages_have_are_refused(self) -> None:
        with pytest.raises(UsageError, match="17 exceeds the 16 layers") as caught:
            planned(EVEN, layers=17)
        assert "--layers auto" in str(caught.value.hint)

    def test_a_stage_with_fewer_than_asked_for_is_run_whole(self) -> None:
        uneven = edited(MINDFORMERS, "model.model_config.offset", [0, 0, 1, -1])
        layers = {stage.run.stage: stage.run.layers for stage in planned(uneven, layers=16).stages}
        assert layers == {0: 16, 1: 16, 2: 17, 3: 15}  # 16 of 17 layers are not sufficient for extrapolation

    @pytest.mark.slow
    def test_how_many_it_takes_is_reported_once_and_holds(self) -> None:
        """The first stage of the template needs 2 layers and another one 3: the minimum used to change from one try to the next."""
        config = data_folder("yaml_templates") / "mindformers" / "qwen3_32b.yaml"
        reported = set()
        for layers in (1, 2):
            request = DryrunRequest(config=config, layers=layers)
            with pytest.raises(UsageError, match="chunks empty") as caught:
                plan_job(request, load_config(request))
            reported.add(str(caught.value.hint))
        (hint,) = reported
        assert "dryrun --layers 3;" in hint
        request = DryrunRequest(config=config, layers=3)
        assert all(stage.reason is None for stage in plan_job(request, load_config(request)).stages)
