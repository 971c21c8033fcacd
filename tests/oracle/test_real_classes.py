"""Compare public models' parameters, classes' arguments and layers' trees with MindFormers' real classes and networks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ms_tune.dialects.operators import Tree, dynamic_model, layer_model, read_tree
from ms_tune.enums import Dialect
from ms_tune.estimate.static import count_parameters
from ms_tune.facts.models import model_of
from ms_tune.facts.query import VERSIONS, all_at, installed_version, load
from tests.oracle import make_trees

ROOT = Path(__file__).parents[2]
MODELS = load("sizes")["models"]
# One of each class that trains, and the largest.
NAMES = ("Qwen3-0.6B", "Qwen3-32B", "TeleChat3-36B", "Qwen3-30B-A3B", "TeleChat3-105B-A4.7B", "DeepSeek-V3")


@pytest.mark.slow
@pytest.mark.mindspore
@pytest.mark.skipif(find_spec("mindformers") is None, reason="MindFormers is not installed")
def test_a_public_model_has_the_parameters_of_the_real_class(tmp_path: Path) -> None:
    configs = [json.dumps(MODELS[name]["config"]) for name in NAMES]
    command = [sys.executable, "-m", "tests.oracle.sizes_child", *configs]
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    real = [int(count) for count in re.findall(r"^parameters (\d+)$", done.stdout, re.MULTILINE)]
    source = SimpleNamespace(data={"use_legacy": False})
    models = [model_of(source, Dialect.MINDFORMERS, "1.9", MODELS[name]["config"]) for name in NAMES]
    assert dict(zip(NAMES, real, strict=True)) == dict(zip(NAMES, map(count_parameters, models), strict=True)), (
        done.stderr
    )


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


def _installed() -> str | None:
    try:
        release = ".".join(version("mindformers").split(".")[:2])
    except PackageNotFoundError:
        return None
    return release if release in VERSIONS else None


RELEASE = _installed() or ""


def as_tree(shape: Any) -> Tree:  # noqa: ANN401 - as JSON has it
    operators, cells = shape
    return Tree(operators, [(name, as_tree(cell)) for name, cell in cells.items()])


def text(tree: Tree) -> str:
    return " ".join(tree.paths())


@pytest.mark.mindspore
@pytest.mark.skipif(not RELEASE, reason="needs MindFormers")
@pytest.mark.parametrize(
    ("kind", "model"),
    [
        pytest.param("static", "LlamaForCausalLM", marks=pytest.mark.more),
        ("research", "DeepseekV3ForCausalLM"),
        ("static", "deepseek_v3"),
    ],
)
def test_real_layers(kind: str, model: str, tmp_path: Path) -> None:
    found = find_spec("mindformers")
    assert found is not None
    site = Path(str(found.origin)).parents[1]
    (tmp_path / RELEASE).symlink_to(site, target_is_directory=True)
    done = subprocess.run(
        [sys.executable, make_trees.__file__, kind, model, str(tmp_path), RELEASE],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(site)},
    )
    variants = json.loads(done.stdout.splitlines()[-1])
    known = all_at(load("trees")["static"][model], RELEASE)
    assert set(variants) == set(known)
    for name, kinds in variants.items():
        expected = list(dict.fromkeys(text(as_tree(kind)) for kind in kinds))
        assert [text(read_tree(number)) for number in known[name]] == expected


@pytest.mark.parametrize(
    ("model", "release", "path"),
    [
        ("LlamaForCausalLM", "1.6", "feed_forward.w1.activation.silu"),
        ("TelechatForCausalLM", "1.9", "attention.wk_v.matmul"),
        ("DeepseekV3ForCausalLM", "1.8", "attention.lkv2kv_k_nope.matmul"),
        ("qwen3", "1.7", "mlp.activation_func.silu"),
        ("deepseek_v3", "2.1", "mlp.shared_experts.mul"),
    ],
)
def test_what_is_known(model: str, release: str, path: str) -> None:
    found = layer_model(model, release, "silu" if model.islower() else "")
    assert found is not None
    assert path in {path for kind in found.kinds for path in kind.paths()}


def test_releases_that_cannot_train_a_model() -> None:
    assert layer_model("qwen3", "1.6", "silu") is None
    assert layer_model("telechat3", "1.8", "silu") is None
    assert dynamic_model("qwen3", "1.9") is None
    found = dynamic_model("deepseek_v3", "2.1")
    assert found is not None
    assert len(found.kinds) == 2
    assert found.ahead is not None
