"""Compare the tables of context keys with the code of the installed MindSpore."""

from __future__ import annotations

import ast
import os
import sysconfig
from functools import cache
from pathlib import Path

import pytest

from ms_tune.dialects.mindformers.refusals_values import _DEMANDS  # this test compares the table itself
from ms_tune.enums import Dialect
from ms_tune.facts.keys import by_section, mindspore_values
from ms_tune.facts.query import load

TOLD = load("mindspore_context")
DEPRECATED, NESTED, REMOVED, SKIPPED = (TOLD[name] for name in ("deprecated", "nested", "removed", "skipped"))
PARALLEL_DEPRECATED = TOLD["parallel_deprecated"]
SITE = Path(os.environ.get("MS_TUNE_SITE_PACKAGES", sysconfig.get_path("purelib"))) / "mindspore"
pytestmark = pytest.mark.skipif(not (SITE / "context.py").is_file(), reason="MindSpore is not installed")
# Keys with a special warning in `set_context`, which are in no table there.
WARNED = {
    *("print_file_path", "reserve_class_name_in_scope", "env_config_path"),
    *("enable_graph_kernel", "graph_kernel_flags"),
}


@cache
def function(file: str, name: str) -> ast.FunctionDef:
    tree = ast.parse((SITE / file).read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    assert found, f"{name} is not in {file}"
    return found[0]


def texts(node: ast.AST) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def table(node: ast.FunctionDef, name: str) -> dict[str, object]:
    """Return the dict literal of a function."""
    for one in ast.walk(node):
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and one.targets[0].id == name:
            value: dict[str, object] = ast.literal_eval(one.value)
            return value
    raise AssertionError(name)


def test_every_deprecated_key_is_reported() -> None:
    reported = table(function("context.py", "_check_context_deprecated"), "deprecated_context_dict")
    assert {key for key in DEPRECATED if key not in WARNED} == reported.keys()
    # Where MindSpore names no replacement, none is invented.
    assert {key for key, instead in DEPRECATED.items() if not instead} - WARNED == {
        key for key, instead in reported.items() if not instead
    }


def test_removed_and_nested_keys() -> None:
    assert REMOVED.keys() == table(function("context.py", "_check_context_deprecated"), "invalid_context_dict").keys()
    assert {*NESTED} <= texts(function("context.py", "_check_key"))
    refused = next(one for one in ast.walk(function("context.py", "_check_key")) if isinstance(one, ast.Tuple))
    assert {*NESTED} == {*ast.literal_eval(refused)}


def test_keys_that_are_warned_of_or_skipped() -> None:
    body = function("context.py", "set_context")
    mentioned = texts(body)
    assert mentioned >= WARNED
    skipping = [
        one.test
        for one in ast.walk(body)
        if isinstance(one, ast.If) and isinstance(one.body[-1], ast.Continue) and "warning" in ast.unparse(one.body[0])
    ]
    assert {*SKIPPED} == {word for test in skipping for word in texts(test)}


def test_values_that_the_code_lists() -> None:
    lists = {"memory_optimize_level": "memory_optimize_levels", "exec_order": "exec_order_options"}
    for key, name in lists.items():
        node = function("context.py", f"set_{key}")
        found = [
            one.value for one in ast.walk(node) if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == name
        ]
        assert [list(mindspore_values(f"context_{key}"))] == [ast.literal_eval(one) for one in found] or not found
    assert list(mindspore_values("context_mode")) == [0, 1]
    tree = ast.parse((SITE / "context.py").read_text(encoding="utf-8"))
    setters = next(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "setters"
        and isinstance(node.value, ast.Dict)
    )
    keys = {one.value for one in setters.keys if isinstance(one, ast.Constant)}
    assert keys <= {*mindspore_values("context_keys")}


def test_every_parallel_key_is_known() -> None:
    tree = ast.parse((SITE / "parallel" / "_auto_parallel_context.py").read_text(encoding="utf-8"))
    setters = next(
        one.value
        for one in tree.body
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "_set_auto_parallel_context_func_map"
    )
    assert isinstance(setters, ast.Dict)
    keys = {key.value for key in setters.keys if isinstance(key, ast.Constant)}
    known = set(by_section(Dialect.MINDFORMERS)["parallel",])
    assert keys <= known
    assert PARALLEL_DEPRECATED.keys() <= keys
    # MindFormers sets the number of devices itself; modes, data sets and pipelines have checks of their own.
    elsewhere = {"device_num", "parallel_mode", "dataset_strategy", "pipeline_config"}
    assert keys - _DEMANDS.keys() == elsewhere
    assert _DEMANDS.keys() <= keys
