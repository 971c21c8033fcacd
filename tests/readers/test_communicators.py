"""Test the communication groups of a process, from lines of MindSpore 2.7 and 2.9."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from ms_tune.readers.runtime_log import ProcessGroups, read_runtime_log

WORLD = "hccl_world_group"


def line(text: str, pid: int = 7) -> str:
    place = "mindspore/ccsrc/runtime/hardware_abstract/collective/collective_manager.cc:943"
    return (
        f"[WARNING] ME({pid},7fedbd015b80,python):2026-11-22-18:33:48.225.402 [{place}] CreateSimulationGroup] {text}\n"
    )


def begun(size: int, rank: int, pid: int = 7) -> str:
    text = f"Initializing dummy collective communication with rank size: {size}, rank id: {rank}, local rank id: 0. Real rank size: 1."
    return line(text, pid)


def group_line(name: str, ranks: Iterable[int], pid: int = 7) -> str:
    written = [str(rank) for rank in ranks]
    if len(written) > 10:
        written = [f"[{place}]:{{{rank}}}" for place, rank in enumerate(written)]
    members = "{" + ", ".join(written) + "}"
    text = f"Create dummy communication group with group name: {name}, group ranks: [const vector]{members}. Real group size: 1."
    return line(text, pid)


def groups(tmp_path: Path, *lines: str) -> list[ProcessGroups]:
    path = tmp_path / "log"
    path.write_text("".join(lines))
    return list(read_runtime_log(path).processes)


@pytest.mark.parametrize("count", [2, 9, 10, 11, 12, 500])
def test_a_rank_is_found_wherever_it_is(tmp_path: Path, count: int) -> None:
    """Larger groups are written with positions, which are not ranks."""
    every = range(1, 2 * count, 2)
    for rank in (every[0], every[-1]):
        assert groups(tmp_path, begun(2000, rank), group_line("odd", every))[0].ranks_by_group == {
            WORLD: 2000,
            "odd": count,
        }
    assert groups(tmp_path, begun(2000, 0), group_line("odd", every))[0].ranks_by_group == {WORLD: 2000}
    assert groups(tmp_path, begun(2000, 2), group_line("odd", every))[0].ranks_by_group == {WORLD: 2000}


def test_of_a_line_that_was_cut_nobody_is_left_out(tmp_path: Path) -> None:
    """MindSpore cuts lines at 30,000 characters; a rank that is missing in the remaining part may be in the other one."""
    cut = group_line("large", range(0, 20000, 2))[:30000] + "\n"
    own = groups(tmp_path, begun(20000, 19998), cut)[0].ranks_by_group
    assert list(own) == [WORLD, "large"]
    assert 2000 < own["large"] < 10000


def test_a_group_of_one_has_nobody_to_exchange_with(tmp_path: Path) -> None:
    assert groups(tmp_path, begun(1, 0), group_line("alone", [0])) == [ProcessGroups(0, {})]


def test_groups_of_the_cpu_take_nothing_of_the_device(tmp_path: Path) -> None:
    lines = (
        begun(4, 0),
        group_line("mccl_2_30879612a0f2eb969a8b57e5bc857347e88fdf07", [0, 1]),
        group_line("hccl_2_308796", [0, 1]),
    )
    assert list(groups(tmp_path, *lines)[0].ranks_by_group) == [WORLD, "hccl_2_308796"]


def test_processes_that_share_a_log_are_distinguished(tmp_path: Path) -> None:
    lines = (
        begun(2, 0, 70),
        begun(2, 1, 71),
        group_line("a", [0, 1], 71),
        group_line("b", [0, 1], 70),
        group_line("c", [0, 1], 72),
    )
    assert groups(tmp_path, *lines) == [ProcessGroups(0, {WORLD: 2, "b": 2}), ProcessGroups(1, {WORLD: 2, "a": 2})]


@pytest.mark.slow
def test_a_log_without_end_is_read_without_growing(tmp_path: Path) -> None:
    own = groups(tmp_path, begun(2, 0), *(group_line(f"g{number}", [0, 1]) for number in range(10_010)))[
        0
    ].ranks_by_group
    assert len(own) == 10_000
