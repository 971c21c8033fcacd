"""Test remedies for lists of the static graph in forms that the framework refuses, with swap on and off."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, render
from tests.jobs import normalize_source, plan_of
from tests.normalize.test_remedies import DYNAMIC, STATIC, assert_hint

OTHER = "{op_name: a, layers: [1], backward_prefetch: 1}"
LAYER = "{layers: [1], backward_prefetch: 1}"


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        (f"layer_swap: [3, {LAYER}]", f"layer_swap: [{LAYER}]"),
        (f"default_prefetch: 3, layer_swap: [3, {LAYER}]", f"layer_swap: [{LAYER}]"),  # one separate entry stays
        (f"op_swap: [{{op_name: 3, layers: [1], backward_prefetch: 1}}, {OTHER}]", f"op_swap: [{OTHER}]"),
        (f"op_swap: [{LAYER}, {OTHER}]", f"op_swap: [{OTHER}]"),
        (
            "op_swap: [{op_name: [a, b], layers: [1], backward_prefetch: 0}]",
            "op_swap[0]: {op_name: [a, b], layers: [1], backward_prefetch: 1}",
        ),
        (
            "layer_swap: [{layers: ['1', 2], backward_prefetch: 1}]",
            "layer_swap[0]: {layers: [1, 2], backward_prefetch: 1}",
        ),
        (
            "layer_swap: [{layers: True, backward_prefetch: 1}, {layers: [2], backward_prefetch: 2}]",
            "layer_swap[1]: {layers: [2], backward_prefetch: 1}",
        ),
        ("layer_swap: [{layers: [1]}], default_prefetch: 3", "layer_swap[0]: {layers: [1], backward_prefetch: 3}"),
        (
            "layer_swap: {layers: [1]}, default_prefetch: 0",
            f"default_prefetch: 1; swap_config.layer_swap: {LAYER}",
        ),
    ],
)
def test_entries_of_swap(settings: str, hint: str) -> None:
    assert_hint(f"{STATIC}  recompute: False\nswap_config: {{swap: True, {settings}}}\n", f"swap_config.{hint}")


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ("select_recompute: mlp", "select_recompute: {mlp: true}"),
        ("select_recompute: {'(': [1, 1, 1, 1], a: True}", "select_recompute: {a: true}"),
        ("select_recompute: ['(', a]", "select_recompute: [a]"),
    ],
)
def test_patterns(settings: str, hint: str) -> None:
    assert_hint(f"{STATIC}  recompute: False\n  {settings}\n", f"recompute_config.{hint}")


def test_who_asks_for_no_remedy_gets_none() -> None:
    source = parse_source(
        f"{STATIC}  recompute: [9, 1, 0]\n".replace("offset: 0", "offset: [1, 1, 0, 0]"), Path("c.yaml")
    )
    reported, bare = normalize_source(source).problems[0], plan_of(source).problems[0]
    assert reported.help is not None
    assert bare.help is None
    assert bare.message == reported.message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("parallelism: {pipeline_parallel: 9}", "model.num_layers: 9"),
        (  # the remainder goes to the middle, then to the last chunk
            "parallelism: {pipeline_parallel: 3, pipeline_parallel_interleave_num: 2}",
            "parallelism.pipeline_parallel_layers_per_stage: ['0,5', '1-2,6', '3-4,7']",
        ),
        ("recompute: {mode: full}", "recompute.full_recompute_layer: [0-7]"),
        ("recompute: {mode: full, full_recompute_layer: 3}", "recompute.full_recompute_layer: ['3']"),
        ("recompute: {mode: full, full_recompute_layer: ['5-2', '9']}", "recompute.full_recompute_layer: [2-5]"),
        ("recompute: {mode: select, select_module: {mlp: ['0'], ' ': ['1']}}", "recompute.select_module: {mlp: ['0']}"),
        (
            "recompute: {mode: full, full_recompute_layer: ['0'], exclude_op: [' ', a]}",
            "recompute.exclude_op: {a: [0-7]}",
        ),
        (
            "recompute: {mode: full, full_recompute_layer: ['0'], exclude_op: {mlp: ['99']}}",
            "recompute.exclude_op.mlp: []",
        ),
        (
            "recompute_comm: {enable: True, select_module: {'(': ['0'], mlp: ['1']}}",
            "recompute_comm.select_module: {mlp: ['1']}",
        ),
    ],
)
def test_lists_and_switches_of_the_dynamic_graph(text: str, hint: str) -> None:
    assert_hint(f"{DYNAMIC}{text}\n", hint)


def test_operators_to_leave_out_are_a_list_of_names_in_2_0() -> None:
    text = f"{DYNAMIC}recompute: {{mode: full, full_recompute_layer: ['0'], exclude_op: {{mlp: ['99'], ' ': []}}}}\n"
    hint = normalize_source(parse_source(text, Path("c.yaml")), "2.0").problems[0].help
    assert hint is not None
    assert render(hint, Language.EN) == "change to: recompute.exclude_op: [mlp]"
