"""Test the programs that start training, by name and by module."""

from __future__ import annotations

import pytest

from ms_tune.facts.launchers import find_launcher, launcher_of_module


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
    found = find_launcher(command)
    assert (found and found.name) == name


def test_by_module() -> None:
    modules = ("torch.distributed.run", "torch.distributed.launch", "deepspeed.launcher.runner", "pytest")
    found = [launcher_of_module(module) for module in modules]
    assert [one and one.name for one in found] == ["torchrun", "torch.distributed.launch", "deepspeed", None]
