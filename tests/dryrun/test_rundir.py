"""Test the run folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune import __version__
from ms_tune.dryrun.rundir import create_run_folder, make_manifest, write_json
from ms_tune.errors import UsageError


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
