"""Test explicit lists: changed values, unchanged ones, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, MsTuneError
from ms_tune.source.yaml import parse_source
from tests.jobs import explicit

HEAD = """\
# a comment
parallel: {pipeline_config: {pipeline_interleave: True, pipeline_scheduler: 1f1b}}
parallel_config: {pipeline_stage: 2}   # two
model:
  model_config: {num_layers: 8, pp_interleave_num: 2}
recompute_config:
"""


def written(body: str, head: str = HEAD) -> str:
    result = explicit(parse_source(head + body, Path("c.yaml")), Dialect.MINDFORMERS, "1.9")
    assert result.text.startswith(head)
    again = explicit(parse_source(result.text, Path("c.yaml")), Dialect.MINDFORMERS, "1.9")
    assert again.text == result.text
    assert again.change_count == 0
    return result.text.removeprefix(head)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  recompute: True  # all\n", "  recompute: [[2, 2], [2, 2]]  # all\n"),
        ("  recompute: [3, 1]\n", "  recompute: [[2, 1], [1, 0]]\n"),
        ("  recompute: [[1,  0],[2,0]]\n", "  recompute: [[1,  0],[2,0]]\n"),
        ("  recompute: [[9,  0], # top\n    [2,0]]\n", "  recompute: [[2,  0], # top\n    [2,0]]\n"),
        ("  recompute:\n  - 3\n  - 1\nz: 1\n", "  recompute: [[2, 1], [1, 0]]\nz: 1\n"),
        ("  recompute: # why\n    - 3\n    - 1\n\nz: 1\n", "  recompute: [[2, 1], [1, 0]] # why\n\nz: 1\n"),
        ("  recompute:\n    - [1, True]\n    - [0, 0]\n", "  recompute:\n    - [1, 2]\n    - [0, 0]\n"),
        ("  recompute: &r [1, 0]\n", "  recompute: &r [[1, 0], [0, 0]]\n"),
        ("  recompute: ['1']\n", "  recompute: [[2, 2], [2, 2]]\n"),
        ("  recompute: False\n  select_recompute: []\n", "  recompute: False\n  select_recompute: []\n"),
        ("  select_recompute: [1, 0]\n", "  select_recompute: [[1, 0], [0, 0]]\n"),
        ("  select_recompute: ['a\\.b']\n", "  select_recompute: {'a\\.b': [[2, 2], [2, 2]]}\n"),
        (
            '  select_recompute: {"a\\\\.b": True, c: False}\n',
            '  select_recompute: {"a\\\\.b": [[2, 2], [2, 2]], c: False}\n',
        ),
        (
            "  select_recompute: {a: True}\n  select_recompute_exclude: {a: [1, 0]}\n",
            "  select_recompute: {a: True}\n  select_recompute_exclude: {a: [[1, 0], [0, 0]]}\n",
        ),
        ("  recompute: [3, 1]\r\n  select_recompute: False\r\n", "  recompute: [[2, 1], [1, 0]]\r\n  select_recompute: False\r\n"),
    ],
)  # fmt: skip
def test_what_is_written(before: str, after: str) -> None:
    assert written(before) == after


def test_layer_numbers_when_swap_is_on() -> None:
    body = "  recompute: [3, 1, 3, 99]\nswap_config: {swap: True, layer_swap: [{layers: [5], backward_prefetch: 1}]}\n"
    assert written(body) == body.replace("[3, 1, 3, 99]", "[1, 3]")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("  recompute: &r [1, 0]\nother: *r\n", "used elsewhere"),
        ("  recompute: &r [[9, 0], [0, 0]]\nother: *r\n", "used elsewhere"),
        ("  recompute: [[&n 9, 0], [0, *n]]\n", "is an alias"),
        ("  recompute: *r\n", "is an alias"),
        ("  <<: *s\n", "is an alias"),
        ("  recompute: [-1, 0]\n", "nothing written"),
    ],
)
def test_what_is_refused(body: str, words: str) -> None:
    needs_anchors = "&r" not in body and ("*r" in body or "*s" in body)
    anchors = "x: &r [1, 0]\ns: &s {recompute: [1, 0]}\n" if needs_anchors else ""
    with pytest.raises(MsTuneError) as caught:
        explicit(parse_source(anchors + HEAD + body, Path("c.yaml")), Dialect.MINDFORMERS, "1.9")
    assert words in str(caught.value)
    if "nothing" not in words:
        assert isinstance(caught.value, ConfigError)
        assert caught.value.line is not None


@pytest.mark.parametrize("listed", ["\n    - 1  # one\n    - 0\n", " [1, # one\n   0]\n"])
def test_a_list_with_comments_stays_alone(listed: str) -> None:
    """The list next to it is still written."""
    body = f"  recompute:{listed}  select_recompute: [9, 0]\n"
    source = parse_source(HEAD + body, Path("c.yaml"))
    result = explicit(source, Dialect.MINDFORMERS, "1.9")
    assert result.text == HEAD + body.replace("[9, 0]", "[[2, 0], [2, 0]]")
    assert (result.change_count, result.left) == (1, (("recompute_config", "recompute"),))


def test_a_tag_goes_with_the_value() -> None:
    assert "True" not in written("  recompute: !!bool True\n")
    assert "!!bool" not in written("  recompute: !!bool True\n")
