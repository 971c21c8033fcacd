"""Compare the tables of classes' arguments with the real classes of the installed MindFormers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ms_tune.facts.query import all_at, installed_version, load

_ASK = """
import inspect, json, sys
from mindformers import MindFormerRegister, MindFormerModuleType
from mindformers.core import build_callback
kinds = {"callback": "CALLBACK", "lr_schedule": "LR", "optimizer": "OPTIMIZER", "runner_wrapper": "WRAPPER"}
found = {}
for kind, names in json.loads(sys.argv[1]).items():
    for name in names:
        made = MindFormerRegister.get_cls(getattr(MindFormerModuleType, kinds[kind]), name)
        of = made.__new__ if inspect.isclass(made) and made.__new__ is not object.__new__ and "__new__" in vars(made) else made.__init__ if inspect.isclass(made) else made
        taken = inspect.signature(of).parameters.values()
        found[name] = [sorted(one.name for one in taken if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)), any(one.kind is one.VAR_KEYWORD for one in taken)]
try:
    build_callback([{"type": "CheckpointMonitor", "save_checkpoint_step": 500}])
    found[""] = "taken"
except TypeError as error:
    found[""] = str(error)
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.mindspore
def test_the_classes_take_what_the_table_says() -> None:
    version = installed_version("mindformers")
    if version is None:
        pytest.skip("MindFormers is not installed")
    release = ".".join(version.split(".")[:2])
    table = {kind: all_at(classes, release) for kind, classes in load("taken").items()}
    asked = json.dumps({kind: sorted(classes) for kind, classes in table.items() if kind != "dataset"})
    answer = subprocess.run([sys.executable, "-c", _ASK, asked], check=True, capture_output=True, text=True).stdout
    found = json.loads(answer.splitlines()[-1])
    assert "unexpected keyword argument" in found.pop("")
    assert len(found) > 20
    del table["dataset"]
    for classes in table.values():
        for name, expected in classes.items():
            names, free = found[name]
            assert set(names) - {"self", "cls"} <= set(expected["takes"]), name
            assert free or not expected["free"], name
