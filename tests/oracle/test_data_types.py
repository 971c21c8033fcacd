"""Compare the names of data types with the tables in the wheels of MindFormers."""

from __future__ import annotations

import ast

import pytest

from ms_tune.facts.keys import mindspore_values
from ms_tune.facts.query import VERSIONS
from tests.oracle import wheels

_FILES = {"1.6": "mf_model_config", "1.7": "mf_model_config", "1.8": "mf_model_config"}


@pytest.mark.parametrize("release", VERSIONS)
def test_the_names_of_a_release(release: str) -> None:
    found = wheels.wheel(release)
    if isinstance(found, str):
        pytest.skip(found)
    text = wheels.source(release, f"parallel_core/{_FILES.get(release, 'transformer_config')}.py")
    (table,) = (
        node.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ms_dtype_mapping"
    )
    assert isinstance(table, ast.Dict)
    names = [ast.literal_eval(key) for key in table.keys if key is not None]
    assert names == list(mindspore_values("core_data_types"))
