"""Test the number of devices of a job: one rule for the packaged model and for named configs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from ms_tune.dryrun.prepare import prepare_run
from ms_tune.dryrun.request import DryrunRequest, PreparedRun, Split
from ms_tune.errors import ConfigError
from ms_tune.facts.query import data_folder
from ms_tune.reference.read import MOST_DEVICES
from tests.dryrun.configs import MINDFORMERS, MINDSPEED, edited

PACKAGED = data_folder("yaml_templates") / "mindspeed_ms" / "llama2_7b.yaml"


@pytest.fixture(autouse=True)
def working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


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


@pytest.mark.parametrize(
    ("scheduler", "micro_batches", "less", "held"),
    [
        ("1f1b", 16, "", [(7, 4), (5, 4), (4, 3), (4, 1)]),
        ("1f1b", 6, "", [(6, 6), (6, 5), (6, 3), (6, 1)]),
        ("1f1b", 6, "1", [(6, 4), (6, 3), (6, 2), (6, 1)]),  # ENABLE_LESS_MEM_VPP of MindSpore
        ("1f1b", 3, "", [None] * 4),  # MindSpore refuses it
        ("gpipe", 5, "", [(5, 5)] * 4),
        ("seqpipe", 16, "", [None] * 4),
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
