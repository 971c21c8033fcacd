from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import yaml

from ms_tune.facts.query import data_folder
from ms_tune.lint.checklist import read_values
from ms_tune.source.yaml_nodes import Loader

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "list.yaml"
    path.write_text("a: [1, 2.5, null, yes, 数]\n", encoding="utf-8")
    return path


def kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").rglob("*.json"))


def test_values_are_kept_and_read_again(file: Path, tmp_path: Path) -> None:
    wanted = {"a": [1, 2.5, None, True, "数"]}
    assert read_values(file) == wanted
    (one,) = kept(tmp_path)
    assert read_values(file) == wanted
    one.write_text(one.read_text(encoding="utf-8").replace("2.5", "7.5"), encoding="utf-8")
    assert read_values(file)["a"][1] == 7.5  # this is where they come from


def test_a_changed_file_is_read_anew(file: Path) -> None:
    read_values(file)
    file.write_text("b: 1\n")
    assert read_values(file) == {"b": 1}
    os.utime(file, ns=(1, 1))
    assert read_values(file) == {"b": 1}


@pytest.mark.parametrize("content", ["", "[]", '{"key": 1}', "\0", '{"key": [], "values": 1}'])
def test_what_cannot_be_used_is_ignored(file: Path, tmp_path: Path, content: str) -> None:
    wanted = read_values(file)
    kept(tmp_path)[0].write_text(content)
    assert read_values(file) == wanted


def test_values_that_json_would_change_are_not_kept(file: Path, tmp_path: Path) -> None:
    file.write_text("1: 2024-01-01\n")
    assert read_values(file) == read_values(file)
    assert 1 in read_values(file)
    assert kept(tmp_path) == []


def test_without_a_folder_it_works_too(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for folder in (str(tmp_path / "file"), "relative"):
        monkeypatch.setenv("MS_TUNE_CACHE", folder)
        assert read_values(file)["a"][0] == 1
    assert kept(tmp_path) == []


def test_what_a_stopped_process_left_behind_is_not_touched(file: Path, tmp_path: Path) -> None:
    read_values(file)
    (one,) = kept(tmp_path)
    left = one.with_name(f"{one.name}.{os.getpid()}")
    one.rename(left)
    assert read_values(file) == {"a": [1, 2.5, None, True, "数"]}
    assert kept(tmp_path) == []
    assert left.exists()


@pytest.mark.parametrize(
    "text",
    ["", "a", "3", "{a: &x [1, b], c: *x}", "a: &m {b: 1, c: no}\nd: {<<: *m, c: 2}", "{1: a, null: b, 2.5: [~, 1e5]}", "a: 2026-01-01"],
)  # fmt: skip
def test_values_are_those_of_yaml(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    assert read_values(path) == yaml.safe_load(text)


@pytest.mark.parametrize("path", sorted(data_folder("checklists").rglob("*.yaml")), ids=lambda path: path.stem)
def test_values_of_checklists_are_those_of_yaml(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path))
    assert read_values(path) == yaml.load(path.read_bytes(), Loader=Loader)  # noqa: S506 - it is a safe loader
