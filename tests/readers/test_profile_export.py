"""Test the search for exports of a profile, and the rank from their names and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers import profile_export
from ms_tune.readers.profile_export import CLUSTER, OUTPUT, contains_profile, find_profiles, read_rank

STEPS = "Step,Computing,Communication(Not Overlapped),Communication,Free,Stage,Bubble,Preparing\n1,2,0,0,1,3,0,0\n"


def put(path: Path, text: str = STEPS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("name", ["step_trace_time.csv", "kernel_details.csv", "trace_view.json"])
def test_a_folder_with_one_of_three_files_is_an_export(tmp_path: Path, name: str) -> None:
    folder = put(tmp_path / "a" / "b" / OUTPUT / name).parent
    put(folder / "deeper" / name)
    assert find_profiles(tmp_path) == [folder]
    assert find_profiles(folder) == [folder]
    assert contains_profile(tmp_path)
    assert contains_profile(folder)
    assert not contains_profile(folder / name)


def test_exports_are_looked_for_four_folders_deep(tmp_path: Path) -> None:
    found = put(tmp_path / "1" / "2" / "3" / "4" / "step_trace_time.csv").parent
    put(tmp_path / "one" / "2" / "3" / "4" / "5" / "step_trace_time.csv")
    (tmp_path / "link").symlink_to(tmp_path / "1", target_is_directory=True)
    assert find_profiles(tmp_path) == [found]


def test_a_clusters_table_represents_exports_that_are_not_there(tmp_path: Path) -> None:
    inner = put(tmp_path / "cluster_analysis_output" / CLUSTER)
    assert find_profiles(tmp_path) == [inner]
    outer = put(tmp_path / CLUSTER)
    assert find_profiles(tmp_path) == [outer]
    assert find_profiles(outer) == [outer]
    assert contains_profile(outer)
    assert not contains_profile(tmp_path)
    export = put(tmp_path / "rank_0" / "trace_view.json").parent
    assert find_profiles(tmp_path) == [export]


def test_nothing_there_and_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (tmp_path, tmp_path / "absent"):
        with pytest.raises(TraceError):
            find_profiles(place)
        assert not contains_profile(place)
    for rank in range(3):
        put(tmp_path / f"rank_{rank}" / "trace_view.json")
    for name, most in (("_MOST_RANKS", 3), ("_MOST_FOLDERS", 4)):
        monkeypatch.setattr(profile_export, name, most)
        assert len(find_profiles(tmp_path)) == 3
        monkeypatch.setattr(profile_export, name, most - 1)
        with pytest.raises(TraceError):
            find_profiles(tmp_path)
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("above", "info", "text", "expected"),
    [
        ("x", None, "", (None, "", False)),
        ("x_rank12_y", None, "", (12, "", False)),
        ("x_rank_3", None, "", (3, "", False)),
        ("x", "profiler_info_5.json", '{"a": "Level1", "with_stack" : true}', (5, "1", True)),
        ("rank_7", "profiler_info.json", '{"_profiler_level": "Level_none", "with_stack": false}', (7, "none", False)),
        ("rank_7", "profiler_info.json", '{"level": "level2", "rank_id": 4}', (4, "2", False)),
        ("rank_7", "profiler_info.json", '{"rank_id": "4"}', (7, "", False)),
        ("rank_7", "profiler_info.json", "no JSON, Level0", (7, "0", False)),
        ("rank_7", "profiler_info_5.json", "[" * 100_000, (5, "", False)),
    ],
)
def test_what_is_reported_of_a_rank(
    tmp_path: Path, above: str, info: str | None, text: str, expected: tuple[int | None, str, bool]
) -> None:
    folder = put(tmp_path / above / OUTPUT / "step_trace_time.csv").parent
    if info:
        put(tmp_path / above / info, text)
    found = read_rank(folder)
    assert (found.rank, found.level, found.stacks) == expected
    other = put(tmp_path / above / "step_trace_time.csv").parent  # the export itself, without a folder of its own
    assert read_rank(other).rank == expected[0]
