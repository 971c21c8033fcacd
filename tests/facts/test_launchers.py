"""The programs that start training, by name and by module."""

from __future__ import annotations

import pytest

from ms_tune.facts.launchers import is_wrapper, launcher, launcher_named, launcher_of_module


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("msrun", "msrun"),
        ("/opt/conda/bin/torchrun", "torchrun"),
        ("python", "python"),
        ("/usr/bin/python3.11", "python"),
        ("python2", "python"),
        ("deepspeed", "deepspeed"),
        ("pythonw", None),
        ("python4", None),
        ("msrun.py", None),
    ],
)
def test_by_command(command: str, name: str | None) -> None:
    found = launcher_named(command)
    assert (found and found.name) == name


def test_by_module() -> None:
    modules = ("torch.distributed.run", "torch.distributed.launch", "deepspeed.launcher.runner", "pytest")
    found = [launcher_of_module(module) for module in modules]
    assert [one and one.name for one in found] == ["torchrun", "torch.distributed.launch", "deepspeed", None]


def test_options_with_values_and_without() -> None:
    msrun, torchrun = launcher("msrun"), launcher("torchrun")
    assert (msrun.values["worker_num"], msrun.counts, msrun.known) == ("8", ("worker_num",), True)
    assert torchrun.counts == ("nproc_per_node", "nnodes")
    assert "standalone" in torchrun.switches
    assert "standalone" not in torchrun.values
    assert not any("-" in name for one in (msrun, torchrun) for name in (*one.values, *one.switches))


def test_of_others_nothing_but_the_name_is_known() -> None:
    found = launcher("mpirun")
    assert (found.values, found.switches, found.counts, found.known) == ({}, frozenset(), (), False)


def test_wrappers_start_what_is_behind_them() -> None:
    assert is_wrapper("/usr/bin/nohup")
    assert not is_wrapper("msrun")
