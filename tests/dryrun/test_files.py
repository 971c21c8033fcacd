"""Test the files of a run: its folder, the job as JSON, and the errors of jobs that cannot run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune import __version__
from ms_tune.dialects.job_parts import (
    Experts,
    LatentAttention,
    MicroBatches,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    TrainingConfig,
)
from ms_tune.dialects.stage import Chunk, Stage, StageLayer
from ms_tune.dryrun import machine
from ms_tune.dryrun.job import Column, MindFormersJob
from ms_tune.dryrun.machine import check_graph_engine
from ms_tune.dryrun.reading import see_log
from ms_tune.dryrun.rundir import create_run_folder, make_manifest, write_json
from ms_tune.errors import UnsupportedError, UsageError
from ms_tune.records import from_plain, plain_data
from ms_tune.reference.job import ReferenceJob
from ms_tune.source.yaml import source_of
from tests.dryrun.configs import TRAINING

REFERENCE = st.builds(
    ReferenceJob,
    st.builds(
        TrainingConfig,
        shape=st.builds(
            ModelShape,
            rotary_fraction=st.floats(0, 1),  # no job has NaN, which equals nothing
            latent=st.none() | st.builds(LatentAttention),
            experts=st.none() | st.builds(Experts, capacity_factor=st.none() | st.floats(0.5, 4.0)),
        ),
        parallelism=st.builds(Parallelism),
        batch=st.builds(MicroBatches),
        precision=st.builds(Precision),
        optimizer=st.builds(Optimizer),
    ),
    st.builds(
        Stage,
        chunks=st.lists(
            st.builds(
                Chunk,
                st.lists(st.builds(StageLayer, select=st.lists(st.text()).map(tuple)), max_size=3).map(tuple),
                st.booleans(),
                st.booleans(),
            ),
            max_size=3,
        ).map(tuple),
    ),
    st.integers(1, 1024),
    st.integers(1, 10),
    st.just("reference"),
    st.just("ms_tune.reference.transformer.training"),
)
MINDFORMERS = st.builds(
    MindFormersJob,
    columns=st.lists(st.builds(Column)).map(tuple),
    kind=st.just("mindformers"),
    module=st.just("ms_tune.dryrun.child.mindformers"),
)


@given(st.one_of(REFERENCE, MINDFORMERS))
def test_a_job_comes_back_as_it_went(job: ReferenceJob | MindFormersJob) -> None:
    written = json.loads(json.dumps(plain_data(job)))
    assert written["kind"] == ("reference" if isinstance(job, ReferenceJob) else "mindformers")
    assert from_plain(type(job), written) == job


def test_number_formats_are_written_as_their_names() -> None:
    stage = Stage(0, 1, (Chunk((StageLayer(0),), embedding=True, head=True),))
    written = json.loads(json.dumps(plain_data(ReferenceJob(TRAINING, stage, 8, 2))))
    given = {name: value for name, value in written["config"]["precision"].items() if value is not None}
    assert given == {"parameters": "bfloat16", "mixed": True, "gradients": "float32"}
    assert written["config"]["optimizer"]["sharding"] == "optimizer"


@pytest.fixture(autouse=True)
def working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / "cache"))
    return folder


def test_without_a_wish_it_is_new_and_below_the_working_folder(working_folder: Path) -> None:
    folders = [create_run_folder(None, "configs/qwen3.yaml") for _ in range(5)]
    assert len(set(folders)) == 5
    for folder in folders:
        assert folder.parent == working_folder / "ms-tune-runs"
        assert "-qwen3-" in folder.name
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["通义千问.yaml", "../../etc/passwd", "a b;rm -rf $HOME.yaml", "", "x" * 300 + ".yaml"]
)
def test_any_name_gives_a_plain_folder_name(working_folder: Path, name: str) -> None:
    folder = create_run_folder(None, name)
    assert folder.parent == working_folder / "ms-tune-runs"
    assert folder.name.isascii()
    assert not set(folder.name) & set(" /;$")


def test_where_the_working_folder_cannot_be_written_it_is_in_the_cache(working_folder: Path, tmp_path: Path) -> None:
    # Root may write everywhere, so a file replaces the folder.
    (working_folder / "ms-tune-runs").write_text("", encoding="utf-8")
    assert create_run_folder(None, "config.yaml").parent == tmp_path / "cache" / "ms-tune-runs"


@pytest.mark.parametrize("name", ["new", "deep/er/new"])
def test_the_folder_that_the_user_names_is_made(working_folder: Path, name: str) -> None:
    assert create_run_folder(working_folder / name, "config.yaml") == working_folder / name
    assert (working_folder / name).is_dir()


def test_a_folder_that_holds_something_is_refused_and_left_alone(working_folder: Path) -> None:
    (working_folder / "full").mkdir()
    (working_folder / "full" / "thesis.tex").write_text("precious", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        create_run_folder(working_folder / "full", "config.yaml")
    assert str(working_folder / "full") in str(caught.value)
    assert caught.value.hint is not None
    assert (working_folder / "full" / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_reported(working_folder: Path, name: str) -> None:
    (working_folder / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="file"):
        create_run_folder(working_folder / name, "config.yaml")


def test_json_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "changes.json"
    write_json(path, {"version": 1, "文": "字", "path": tmp_path})
    assert json.loads(path.read_text("utf-8")) == {"version": 1, "文": "字", "path": str(tmp_path)}
    with pytest.raises(TypeError):
        write_json(path, {("no", "key"): 1})  # type: ignore[dict-item]
    assert json.loads(path.read_text("utf-8"))["version"] == 1
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == ["changes.json"]


RECORDED = {
    "MS_SIMULATION_LEVEL": "1",
    "RANK_ID": "3",
    "RANK_SIZE": "8",
    "DEVICE_ID": "0",
    "ASCEND_HOME_PATH": "/cann",
    "GLOG_v": "2",
    "HCCL_CONNECT_TIMEOUT": "600",
    "LD_LIBRARY_PATH": "/cann/lib64",
    "PYTHONPATH": "/work",
    "LD_PRELOAD": "libmore.so",
}
SECRET = (
    "AWS_SECRET_ACCESS_KEY",
    "HF_TOKEN",
    "MS_TOKEN",
    "MS_API_KEY",
    "ASCEND_PASSWORD",
    "HCCL_SECRET",
    "MS_credential",
    "http_proxy",
    "USER",
    "SSH_AUTH_SOCK",
    "RANK_ID_OF_MY_BANK",
    "MY_MS_THING",
)


def test_the_manifest_records_what_repeats_the_run_and_no_secret() -> None:
    environment = {**RECORDED, **dict.fromkeys(SECRET, "hunter2")}
    made = make_manifest(["python", "-m", "x"], environment, {"mindspore": "2.9.0"})
    assert made["environment"] == RECORDED
    assert made["ms_tune"] == __version__
    assert made["command"] == ["python", "-m", "x"]
    assert made["mindspore"] == "2.9.0"
    assert "hunter2" not in json.dumps(made)


_BY_CANN = source_of({"context": {"jit_config": {"jit_level": "O2"}}}, Path("config.yaml"))


def test_a_graph_that_cann_compiles_needs_cann(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_real_cann", lambda: None)
    with pytest.raises(UnsupportedError) as caught:
        check_graph_engine(_BY_CANN)
    assert caught.value.message.id == "dryrun.graph-engine"


@pytest.mark.parametrize(
    "config",
    [{}, {"context": None}, {"context": {"jit_config": ["O2"]}}, {"context": {"jit_config": {"jit_level": "O1"}}}],
)
def test_other_graphs_need_none(config: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_real_cann", lambda: None)
    check_graph_engine(source_of(config, Path("config.yaml")))


@pytest.mark.parametrize(
    ("kind", "phase", "text"),
    [
        ("mindformers", "build", "dryrun.run.log.build"),
        ("mindformers", "step", "dryrun.run.log"),
        ("reference", "build", "dryrun.run.log"),
        ("pynative", "build", "reference.run.log"),
    ],
)
def test_an_error_of_mindformers_as_it_builds_the_model_is_reported_from_others(
    kind: str, phase: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"kind": kind}), encoding="utf-8")
    (tmp_path / "progress").write_text(json.dumps({"phase": phase, "step": 0, "steps": 0}), encoding="utf-8")
    assert see_log(tmp_path).id == text
