"""Compare the package's trees with the layers of real networks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ms_tune.dialects.operators import Tree, dynamic_model, layer_model, read_tree
from ms_tune.facts.query import VERSIONS, all_at, load
from tests.oracle import make_trees


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
