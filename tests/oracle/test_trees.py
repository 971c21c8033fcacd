"""The trees that come with ms-tune against the layers of real networks."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import pytest

from ms_tune.layers.tree_data import MODELS, TREES
from ms_tune.layers.trees import TREE_VERSION
from tests.oracle import make_trees

if TYPE_CHECKING:
    from pathlib import Path


def _installed() -> str:
    try:
        return version("mindformers")
    except PackageNotFoundError:
        return "none"


@pytest.mark.mindspore
@pytest.mark.skipif(not _installed().startswith(TREE_VERSION), reason=f"needs MindFormers {TREE_VERSION}")
@pytest.mark.parametrize(("model", "variant"), [("LlamaForCausalLM", ""), ("deepseek_v3", "silu")])
def test_real_layers(model: str, variant: str, tmp_path: Path) -> None:
    task = json.dumps(make_trees.task(model, variant))
    done = subprocess.run(
        [sys.executable, make_trees.__file__, task], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    kinds = list(dict.fromkeys(json.loads(done.stdout.splitlines()[-1])))
    assert kinds == [TREES[number] for number in MODELS[model][variant]]
