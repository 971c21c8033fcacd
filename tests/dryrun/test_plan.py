"""Test the plan of a run: its kind, the number of devices, and which stages, ranks and numbers of layers run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dryrun.extrapolate import undominated_stages
from ms_tune.dryrun.plan import JobPlan, plan_job
from ms_tune.dryrun.prepare import load_config, prepare_run
from ms_tune.dryrun.request import DryrunRequest, PreparedRun, Split, StageChoice
from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.errors import ConfigError, UsageError
from ms_tune.facts.query import data_folder
from ms_tune.reference.read import MOST_DEVICES
from tests.dryrun.configs import MINDFORMERS, MINDSPEED, edited
from tests.kinds import labels


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


def write(config: dict[str, Any], name: str = "config.yaml") -> Path:
    path = Path(name)
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def test_a_config_below_the_working_folder_is_named_from_there(tmp_path: Path) -> None:
    path = write(MINDSPEED)
    assert prepare_run(DryrunRequest(config=path.resolve())).config_name == "config.yaml"
    (tmp_path / "sub").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "sub")
        assert prepare_run(
            DryrunRequest(config=path.resolve() if path.exists() else tmp_path / path)
        ).config_name == str(tmp_path / "config.yaml")


def test_a_dynamic_graph_config_of_mindformers_is_run_by_the_reference_transformer() -> None:
    path = data_folder("yaml_templates") / "mindformers_pynative" / "deepseek3_1b_moe.yaml"
    run = prepare_run(DryrunRequest(config=path, devices=8))
    assert run.dialect is Dialect.MINDFORMERS_PYNATIVE
    assert labels(run.kinds) == {"dense, full recompute": 1, "moe, full recompute": 15}
    assert run.model.id == "dryrun.model.reference"


def test_what_is_no_training_config_is_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        prepare_run(DryrunRequest(config=write({"services": {"web": {"image": "nginx"}}})))
    assert caught.value.message.id == "normalize.no-dialect"
    assert caught.value.location() == "config.yaml"


@pytest.mark.parametrize("config", [MINDFORMERS, MINDSPEED], ids=["mindformers", "mindspeed"])
def test_a_base_is_part_of_the_run_and_is_reported(config: dict[str, Any]) -> None:
    own = {"parallel_config": config["parallel_config"]}
    write({key: value for key, value in config.items() if key not in own}, "base.yaml")
    path = write({"base_config": "base.yaml", **own}, "split.yaml")
    whole = prepare_run(DryrunRequest(config=write(config)))
    run = prepare_run(DryrunRequest(config=path))
    assert (run.job, run.kinds, run.world_size) == (whole.job, whole.kinds, whole.world_size)
    assert [yaml.safe_load(text) for text in run.files.values()] == [
        yaml.safe_load(one) for one in whole.files.values()
    ]
    assert yaml.safe_load(load_config(DryrunRequest(config=path)).original.text) == config
    assert (run.config_name, run.warnings[1:]) == ("split.yaml", whole.warnings)
    assert run.warnings[0].params["file"] == Path("base.yaml")


PACKAGED = data_folder("yaml_templates") / "mindspeed_ms" / "llama2_7b.yaml"


def run(text: str | dict[str, Any], **more: Any) -> PreparedRun:  # noqa: ANN401 - fields of DryrunRequest
    written = text if isinstance(text, str) else yaml.safe_dump(text)
    Path("train.yaml").write_text(written, encoding="utf-8")
    return prepare_run(DryrunRequest(config=Path("train.yaml"), layers=2, **more))


def test_the_packaged_model_is_the_same_job_named_and_unnamed() -> None:
    """It used to be judged on 8 devices if unnamed, and on one, with an unsharded optimizer state, if named."""
    shutil.copy(PACKAGED, "llama2_7b.yaml")
    unnamed, named = (prepare_run(DryrunRequest(config=path, layers=2)) for path in (None, Path("llama2_7b.yaml")))
    assert (named.world_size, named.split, named.devices_source) == (8, Split(data=8), unnamed.devices_source)
    assert named.theory == unnamed.theory
    assert named.warnings == unnamed.warnings == ()


@pytest.mark.parametrize("devices", [MOST_DEVICES + 8, 10**18])
def test_more_devices_than_any_job_has_are_refused(devices: int) -> None:
    with pytest.raises(ConfigError, match=f"{devices} devices exceed the supported maximum"):
        run(MINDSPEED, devices=devices)


def test_a_comment_after_a_key_or_within_a_line_is_none() -> None:
    for text in ("{}# devices: 8\n", "training: 1 # devices: 8\n", "# devices: eight\n", "# devices: 0\n"):
        assert run(text.replace("{}", "x: 1 ") + yaml.safe_dump(MINDSPEED)).devices_source.id == "stages.devices.fewest"


@pytest.mark.parametrize(
    ("script", "devices"),
    [
        ("msrun --worker_num=16 --local_worker_num=8 train.py --config train.yaml", 16),
        ('bash msrun_launcher.sh "run.py --config train.yaml" 32 8', 32),
        ("export RANK_SIZE=4\npython train.py train.yaml", 4),
        ("NPUS_PER_NODE=8\nNNODES=2\ntorchrun $ARGS train.py train.yaml", 16),
        ("torchrun --nproc_per_node 8 train.py train.yaml", 8),
        ("msrun --worker_num=$N train.py train.yaml", None),
        ("msrun --worker_num=16 train.py other.yaml", None),
        ("# msrun --worker_num=16 train.py train.yaml", None),
    ],
)
def test_a_launch_script_next_to_the_config_shows(script: str, devices: int | None) -> None:
    Path("start.sh").write_text(script, encoding="utf-8")
    made = run(MINDSPEED)
    assert made.world_size == (devices or 1)
    assert made.devices_source.id == ("stages.devices.script" if devices else "stages.devices.fewest")


def test_shared_state_with_nobody_to_share_it_is_reported_with_the_option_that_mends_it() -> None:
    text = PACKAGED.read_text("utf-8").replace("# devices: 8\n", "")
    alone = run(text)
    (warning,) = (one for one in alone.warnings if one.id == "stages.devices.alone")
    assert "--devices 8" in str(warning)
    assert [one.id for one in run(text, devices=8).warnings] == []


def test_of_a_static_graph_config_too() -> None:
    alone = edited(MINDFORMERS, "parallel_config.data_parallel", 1)
    shared = {**alone, "parallel": {**alone.get("parallel", {}), "enable_parallel_optimizer": True}}
    assert "stages.devices.alone-static" in [one.id for one in run(shared).warnings]
    assert "stages.devices.alone-static" not in [one.id for one in run(MINDFORMERS).warnings]


@pytest.mark.parametrize(("stage", "flying"), [(0, 4), (1, 3), (2, 2), (3, 1)])
def test_micro_batches_in_flight_follow_from_the_stage(stage: int, flying: int) -> None:
    many = edited(MINDFORMERS, "parallel_config.micro_batch_num", 16)
    assert run(many, stage=stage).in_flight == (flying,)
    few = edited(MINDFORMERS, "parallel_config.micro_batch_num", 1)
    assert run(few, stage=stage).in_flight == (1,)


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("scheduler", "micro_batches", "less", "held"),
    [
        ("1f1b", 16, "", [(7, 4), (5, 4), (4, 3), (4, 1)]),
        ("1f1b", 6, "", [(6, 6), (6, 5), (6, 3), (6, 1)]),
        ("1f1b", 6, "1", [(6, 4), (6, 3), (6, 2), (6, 1)]),  # ENABLE_LESS_MEM_VPP of MindSpore
        ("1f1b", 3, "", [None] * 4),  # MindSpore refuses it
        ("gpipe", 5, "", [(5, 5)] * 4),
        ("seqpipe", 16, "1", [(7, 4), (5, 4), (4, 3), (4, 1)]),
        ("zero_bubble_v", 16, "", [None] * 4),
    ],
)
def test_an_interleaved_pipeline_holds_others_in_each_chunk(
    scheduler: str, micro_batches: int, less: str, held: list[tuple[int, ...] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENABLE_LESS_MEM_VPP", less)
    config = edited(MINDFORMERS, "parallel_config.micro_batch_num", micro_batches)
    config = edited(config, "model.model_config.pp_interleave_num", 2)
    plain = [run(config, stage=stage).in_flight for stage in range(4)]
    assert plain == [(min(4 - stage, micro_batches),) for stage in range(4)]
    pipeline = {"pipeline_interleave": True, "pipeline_scheduler": scheduler}
    config["parallel"] = {**config.get("parallel", {}), "pipeline_config": pipeline}
    assert [run(config, stage=stage).in_flight for stage in range(4)] == held


@pytest.mark.parametrize(("stage", "held"), [(0, (3, 2)), (1, (2, 1))])  # 4 and 2 warm-up passes, and one more
def test_so_does_one_of_the_dynamic_graph(stage: int, held: tuple[int, ...]) -> None:
    config = edited(MINDSPEED, "parallel_config.pipeline_model_parallel_size", 2)
    config = edited(config, "parallel_config.virtual_pipeline_model_parallel_size", 2)
    config = edited(config, "parallel_config.recompute_config.recompute", [[2, 2], [2, 2]])
    assert run(edited(config, "dataset_config.micro_batch_num", 8), stage=stage).in_flight == held
