"""Compare the facts about frameworks with the frameworks' real classes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ms_tune.enums import Dialect
from ms_tune.facts.models import UNKNOWN, ModelFacts, ValueOrigin, facts_of, model_of
from ms_tune.facts.query import all_at, at, load, served
from tests.oracle import framework, make_frameworks, make_keys, registries_child, wheels

CASES = int(os.environ.get("MS_TUNE_ORACLE_CASES", "40"))
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))
DROP = float(os.environ.get("MS_TUNE_ORACLE_DROP", "0.3"))
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Config:
    data: dict[Any, Any]


def _need(release: str) -> None:
    reason = framework.why_missing(release)
    if reason:
        pytest.skip(reason)


def test_the_committed_models_are_those_of_the_wheels() -> None:
    for release in wheels.RELEASES:
        _need(release)
    assert (make_frameworks.DATA / "models.json").read_text() == make_frameworks.text(make_frameworks.models()) + "\n"


@pytest.mark.parametrize("dialect", [Dialect.MINDFORMERS, Dialect.MINDFORMERS_PYNATIVE])
def test_the_committed_keys_are_dated_as_the_wheels_say(dialect: Dialect) -> None:
    for release in served(dialect):
        _need(release)
    name = f"keys_{dialect.value}"
    assert (make_frameworks.DATA / f"{name}.json").read_text() == make_frameworks.text(
        make_frameworks.keys(dialect)
    ) + "\n"
    paths = [row["path"] for row in load(name)["keys"] if not row["path"].startswith(make_keys.MODEL)]
    reported = make_keys.releases_by_key(
        name, {release: make_frameworks._wheel(release) for release in served(dialect)}, paths
    )
    by_hand = [path for path in paths if path not in reported]
    read_beside = [path for path in by_hand if not path.startswith(("context.", "parallel."))]
    assert (len(by_hand), len(read_beside)) == ((72, 33) if dialect is Dialect.MINDFORMERS else (0, 0)), by_hand


def test_the_keys_of_mindspeed_are_those_of_its_classes() -> None:
    """r0.1.0 is in no wheel; the copy in MindFormers 1.6 lacks only keys that the branch added, or reads outside its classes."""
    _need("1.6")
    table = {row["path"]: row.get("default") for row in load("keys_mindspeed-ms")["keys"]}
    found = make_keys.mindspeed(make_frameworks._wheel("1.6"))
    assert len(found) > 190
    handed_over = {"model_config.parallel_config": None, "optimizer_config.parallel_config": None}  # not from the YAML
    assert {path: table[path] for path in found} == found | handed_over
    sections = {path.partition(".")[0] for path in found}
    beside = [
        path for path in table if path.count(".") == 1 and path.partition(".")[0] in sections and path not in found
    ]
    assert len(beside) == 20, beside


def test_a_key_table_says_what_the_sources_say_and_nothing_else() -> None:
    content = {
        "keys": [{"path": "seed", "since": "1.9", "en": "a", "zh": "b"}, {"zh": "d", "path": "hub_token", "en": "c"}]
    }
    content["keys"].append({"path": "monitor_config.health_checkpoint", "until": "1.7", "en": "e", "zh": "f"})
    for release in served(Dialect.MINDFORMERS):
        _need(release)
    releases = {release: make_frameworks._wheel(release) for release in served(Dialect.MINDFORMERS)}
    made = make_keys.dated("keys_mindformers", content, releases)["keys"]
    assert [list(row) for row in made] == [["path", "en", "zh"], ["path", "en", "zh"], ["path", "since", "en", "zh"]]
    assert made[2]["since"] == "1.9"  # MonitorConfig of template.py
    with pytest.raises(ValueError, match=r"swap_config\.swop"):
        make_keys.dated("keys_mindformers", {"keys": [{"path": "swap_config.swop"}]}, releases)


def test_the_committed_arguments_are_what_the_sources_ask_for() -> None:
    for release in wheels.RELEASES:
        _need(release)
    made = make_frameworks.text(make_frameworks.needed()) + "\n"
    assert (make_frameworks.DATA / "needed.json").read_text() == made


def test_the_committed_registries_have_what_the_sources_register() -> None:
    """Registrations by decorators, without executing anything; complete with MS_TUNE_ORACLE_WHOLE=1, in two minutes."""
    for release in wheels.RELEASES:
        _need(release)
    committed = load("registries")
    if os.environ.get("MS_TUNE_ORACLE_WHOLE"):
        assert (make_frameworks.DATA / "registries.json").read_text() == (
            make_frameworks.text(make_frameworks.registries()) + "\n"
        )
    for release in wheels.RELEASES:
        found = make_keys.decorated(make_frameworks._wheel(release))
        assert {"optimizer", "trainer", "dataset", "callback", "core_models"} <= found.keys()
        for kind, module in (registries_child.KINDS | {"core_model": "core_models"}).items():
            known = {*all_at(committed["static"].get(kind, {}), release)}
            known |= {*all_at(committed["dynamic"].get(kind, {}), release)}
            left_out = found.get(module, set()) - known
            assert left_out <= _NOT_IMPORTED, (release, kind, left_out)
            if kind in _BY_DECORATORS:  # MindSpore's own classes are in none of these
                assert known - found.get(module, set()) == set(), (release, kind)


# Classes in the sources that are never imported.
_NOT_IMPORTED = {
    *("LlamaForCausalLMUnify", "ParallelLlamaForCausalLM", "Qwen2ForCausalLM", "Qwen2Config"),
    "UnifiedTrainOneStepCell",
}
_BY_DECORATORS = {"dataset", "model", "core_model", "config", "processor", "tokenizer"}


def _value(draw: random.Random, default: object, rule: list[str]) -> object:
    if rule[1:] == ["is_float_32"]:
        return draw.choice(["float32", "bfloat16", True])
    if isinstance(default, bool):
        return draw.random() < 0.5
    if isinstance(default, int):
        return draw.choice([0, 1, 2, 3, 8, 64])
    if isinstance(default, float):
        return draw.choice([0.5, 1e-5])
    return default


def _section(draw: random.Random, kind: str, facts: ModelFacts) -> dict[str, Any]:
    """Draw a section with some of a class's own keys, and sometimes another name."""
    section: dict[str, Any] = {"model_type": kind}
    for key, default in facts.defaults.items():
        if draw.random() >= DROP and key not in facts.derived and key != "post_process":
            section[key] = _value(draw, default, facts.aliases.get(key, [key]))
            if draw.random() < 0.05:
                section[key] = None
    for key, rule in facts.aliases.items():
        if draw.random() < 0.02:
            section[key] = _value(draw, facts.fields.get(rule[0]), rule)
    return dict(draw.sample(sorted(section.items(), key=str), len(section)))


def _kinds(release: str) -> list[str]:
    classes = load("models")["classes"]
    return [name for name, one in classes.items() if not one["legacy"] and facts_of(release, kind=name).name]


def _answers(release: str, sections: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.oracle.facts_child", str(wheels.wheel(release)), "serve"]
    given = "\n".join(map(json.dumps, sections))
    done = subprocess.run(command, cwd=_ROOT, input=given, capture_output=True, text=True, check=True)
    return map(json.loads, done.stdout.splitlines())


@pytest.mark.parametrize("release", wheels.RELEASES)
def test_every_field_is_what_the_real_class_gets(release: str) -> None:
    _need(release)
    draw = random.Random(f"{SEED}-{release}")  # noqa: S311 - no secret
    kinds = _kinds(release)
    sections = [
        _section(draw, kind, facts_of(release, kind=kind)) for kind in (draw.choice(kinds) for _ in range(CASES))
    ]
    taken = 0
    for section, real in zip(sections, _answers(release, sections), strict=True):
        config = Config({"use_legacy": False, "model": {"model_config": section}})
        model = model_of(config, Dialect.MINDFORMERS, release)
        if "refused" in real:
            foreign = [key for key in section if not model.facts.knows(key)]
            assert foreign or any(model.clashes()) or _fails(section, model.facts), (section, real)
            continue
        taken += 1
        assert not [*model.clashes()], (list(model.clashes()), section)
        for name in model.facts.fields:
            field = model.field(name)
            if name in real and field.origin is not ValueOrigin.UNKNOWN and name not in _ELSEWHERE:
                assert field.value == real[name], (section, field)
        unknown = {name for name in model.facts.fields if model.value(name) is UNKNOWN}
        assert unknown <= {model.facts.field_names.get(name, name) for name in model.facts.derived}
    assert taken > CASES / 8


def _fails(section: dict[str, Any], facts: ModelFacts) -> bool:
    """Return whether a null is where the class calculates, or a function of the table needs another type."""
    turned = {key for key, rule in facts.aliases.items() if rule[1:]} & {*section} - {*facts.fills}
    return any(section.get(key, "") is None for key in (*turned, "head_dim", "qk_rope_head_dim", "num_hidden_layers"))


# Keys of ``parallel_config`` outside the model's section; and the second field of one key in 1.9.
_ELSEWHERE = {
    "softmax_compute_dtype",
    *("data_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
    *("expert_model_parallel_size", "sequence_parallel", "micro_batch_num", "seq_split_num", "vocab_emb_dp"),
    *("gradient_aggregation_group", "recompute", "parallel_optimizer_comm_recompute", "mp_comm_recompute"),
    *("recompute_slice_activation", "select_recompute", "select_comm_recompute", "select_recompute_exclude"),
    *("select_comm_recompute_exclude", "expert_tensor_parallel_size", "cp_comm_type"),
    *("hierarchical_context_parallel_sizes",),
}


def test_each_fact_has_a_release_that_there_is() -> None:
    releases = set(load("models")["releases"])
    for one in load("models")["classes"].values():
        for histories in (one["defaults"], one["aliases"]):
            assert all(set(history) <= releases for history in histories.values())
        assert at(one["names"], max(releases)) is not None
