"""Compare the checklist's options with the code (as :mod:`tests.oracle.megatron_layers` runs it).

The code refuses pairs of options; options that the checklist calls overridden have their fixed value in any case.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import pytest

from ms_tune.enums import Dialect
from ms_tune.facts.megatron import definitions, names_by_dest
from ms_tune.facts.query import order
from ms_tune.lint.checklist import built_in
from tests.oracle.make_megatron import SOURCES
from tests.oracle.megatron_layers import run

needs_sources = pytest.mark.skipif(SOURCES not in os.environ, reason=f"{SOURCES} names no sources of MindSpeed-LLM")
_CHECKS = {one.name: one for one in built_in(Dialect.MEGATRON)}
_BASE = {
    "num_layers": "4",
    "hidden_size": "64",
    "num_attention_heads": "4",
    "micro_batch_size": "1",
    "seq_length": "64",
    "max_position_embeddings": "64",
}
_EXPERTS = ("num_experts=8", "moe_router_topk=2", "moe_grouped_gemm", "bf16", "moe_permutation_async_comm")
# Requirements of a pair, so that the code reaches its check; values for options for which the pair names none.
_BESIDE = {
    "moe_alltoall_overlap_comm": ("moe_token_dispatcher_type=alltoall", "expert_model_parallel_size=2"),
    "moe_alltoall_overlap_comm+moe_token_dispatcher_type=alltoall_seq": ("expert_model_parallel_size=2",),
    "moe_expert_capacity_factor": ("moe_token_dispatcher_type=alltoall",),
    "overlap_param_gather": ("use_distributed_optimizer", "overlap_grad_reduce"),
    "tp_comm_overlap": ("tensor_model_parallel_size=2",),
    "distribute_saved_activations": (
        "tensor_model_parallel_size=2",
        "recompute_method=uniform",
        "recompute_num_layers=1",
    ),
    "rope_scaling_type=longrope": (
        "rope_scaling_original_max_position_embeddings=64",
        "long_factor=1",
        "short_factor=1",
    ),
    "schedules_method=dualpipev": ("untie_embeddings_and_output_weights", "pipeline_model_parallel_size=2"),
}


def pairs_of(name: str) -> list[tuple[str, str]]:
    test = _CHECKS[name]
    return [(one, other) for one, other in cast("list[list[str]]", test.options["pairs"])]


_PAIRS = [
    (name, *pair) for name in ("option-without-what-it-needs", "options-refused-together") for pair in pairs_of(name)
]


def words(release: str, settings: dict[str, str]) -> list[str] | None:
    """Return settings as arguments; None if the release does not know one."""
    found = []
    for dest, value in settings.items():
        names = sorted(names_by_dest(release).get(dest, ()), key=lambda one: one.startswith("--no-"))
        if not names:
            return None
        found += [names[0]] if definitions(names[0], release)[-1].action else [names[0], value or "1"]
    return found


def settings_of(*terms: str) -> dict[str, str]:
    parts = [part.partition("=") for term in terms for part in term.split("+")]
    return {dest: value for dest, _, value in parts}


def case(release: str, one: str, other: str, *, together: bool) -> list[str] | None:
    """Return a program with the first option of a pair, and with or without the second."""
    beside = settings_of(*(_EXPERTS if "moe" in one + other else ()), *_BESIDE.get(one, ()), *_BESIDE.get(other, ()))
    asked = settings_of(one, other) if together else settings_of(one)
    left_out = set() if together or "=" in other else {other}
    settings = {dest: value for dest, value in {**_BASE, **beside}.items() if dest not in left_out}
    return words(release, {**settings, **asked})


@needs_sources
@pytest.mark.slow
@pytest.mark.parametrize("release", ["2.2", "2.3", "26.0", "26.1"])
def test_the_code_stops_over_a_pair_and_over_nothing_else(release: str) -> None:
    asked: list[tuple[str, list[str], list[str]]] = []
    for name, one, other in _PAIRS:
        wrong, right = (case(release, one, other, together=name.startswith("options") == bad) for bad in (True, False))
        if wrong and right and _default_differs(release, other):
            asked.append((f"{one}, {other}", wrong, right))
    answers = [
        json.loads(line) for line in run(Path(os.environ[SOURCES]) / release, [c for _, *two in asked for c in two])
    ]
    assert len(asked) > 20
    reported = [
        (pair, _end(bad), _end(good)) for (pair, *_), bad, good in zip(asked, answers[::2], answers[1::2], strict=True)
    ]
    unlike = [one for one in reported if one[1] is None or one[1] == one[2]]
    assert not unlike, unlike


def _default_differs(release: str, other: str) -> bool:
    """Return whether the second option's default differs from the value in the pair."""
    dest, equals, value = other.partition("=")
    return not equals or all(
        one.default != value for name in names_by_dest(release)[dest] for one in definitions(name, release)
    )


def _end(answer: dict[str, Any]) -> str | None:
    return f"{answer['exception']}: {answer['text']}" if "stopped" in answer else None


_OTHER = {"torch": "torch_dist", "1": "2"}  # a value that differs from the option's fixed value


def settings() -> list[tuple[str, str, str, str, str]]:
    rows = _CHECKS["option-always-overwritten"].options["settings"]
    return [tuple(row) for row in cast("list[list[str]]", rows)]  # type: ignore[misc]  # of five


@needs_sources
@pytest.mark.slow
@pytest.mark.parametrize("release", ["2.2", "2.3", "26.0", "26.1"])
def test_they_are_what_they_are_in_any_case(release: str) -> None:
    rows, base = settings(), words(release, _BASE)
    assert base is not None
    cases = []
    for dest, *_, kept, _ in rows:
        name = names_by_dest(release)[dest][0]
        cases.append([*base, name, *([] if definitions(name, release)[-1].action else [_OTHER[kept]])])
    answers = [json.loads(line) for line in run(Path(os.environ[SOURCES]) / release, cases, "settings")]
    for (dest, since, until, kept, _), answer in zip(rows, answers, strict=True):
        is_so = answer.get("settings", {}).get(dest) == kept
        assert is_so == (order(since) <= order(release) < order(until)), (dest, answer)


def test_the_option_that_lets_lengths_differ_is_another_one() -> None:
    assert names_by_dest("2.3")["no_pad_to_seq_lengths"] == ("--no-pad-to-seq-lengths",)
