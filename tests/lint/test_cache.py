from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ms_tune.facts.query import data_folder
from ms_tune.lint.checklist import read_checks

ENTRY = "{id: MST901, name: a, test: {path: a.b, equals: 2.5}, title: {zh: 数}}"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "list.yaml"
    path.write_text(f"checks: [{ENTRY}]\n", encoding="utf-8")
    return path


def cached_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").rglob("*.json"))


def read(file: Path) -> list[tuple[str, object, object]]:
    return [(check.id, check.tests[0]["cases"][0][1], check.entry.get("title")) for check in read_checks(file)]


def test_checks_are_kept_and_read_again(file: Path, tmp_path: Path) -> None:
    wanted = read(file)
    assert wanted == [("MST901", ["not", ["in", ["name", "value"], ["value", [2.5]]]], {"zh": "数"})]
    (one,) = cached_files(tmp_path)
    assert read(file) == wanted
    one.write_text(one.read_text(encoding="utf-8").replace("2.5", "7.5"), encoding="utf-8")
    assert read(file)[0][1] == ["not", ["in", ["name", "value"], ["value", [7.5]]]]  # its source


def test_a_changed_file_is_read_again(file: Path) -> None:
    read(file)
    file.write_text("checks: []\n")
    assert read(file) == []
    os.utime(file, ns=(1, 1))
    assert read(file) == []


@pytest.mark.parametrize("content", ["", "[]", '{{"key": 1}}', "\0", '{{"key": [], "rows": 1}}', "{rows}"])
def test_what_cannot_be_used_is_ignored(file: Path, tmp_path: Path, content: str) -> None:
    wanted = read(file)
    (one,) = cached_files(tmp_path)
    one.write_text(content.format(rows=one.read_text(encoding="utf-8").split("\n")[0]), encoding="utf-8")
    assert read(file) == wanted


def test_values_that_json_would_change_are_not_kept(file: Path, tmp_path: Path) -> None:
    file.write_text(f"checks: [{ENTRY.replace('2.5', '2024-01-01')}]\n")
    assert read(file) == read(file)
    assert cached_files(tmp_path) == []


def test_without_a_folder_it_works_too(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for folder in (str(tmp_path / "file"), "relative"):
        monkeypatch.setenv("MS_TUNE_CACHE", folder)
        assert read(file)[0][0] == "MST901"
    assert cached_files(tmp_path) == []


CHECKLISTS = [
    path for path in sorted(data_folder("checklists").rglob("*.yaml")) if path.parent.name in ("checklists", "code")
]


@pytest.mark.parametrize("path", CHECKLISTS, ids=lambda path: path.stem)
def test_checks_that_are_kept_are_those_of_the_file(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path))
    copy = Path(shutil.copy(path, tmp_path))  # a copy without the pre-parsed rows of an installation
    first, again = read_checks(copy), read_checks(copy)
    assert has_cache(tmp_path)
    assert [(one._row, one.entry) for one in first] == [(one._row, one.entry) for one in again]


def has_cache(folder: Path) -> bool:
    return bool([*folder.rglob("*.json")])
