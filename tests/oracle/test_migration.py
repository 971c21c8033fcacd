"""Compare ``migrate`` with the frameworks: the targets of its table, every training config of MindFormers 1.6 to 1.9, and random ones.

The result is loaded by the real ``TrainConfig``, built by the real model classes, and compared layer by layer: MindFormers'
own ``LayerSetting`` on the old side, its ``apply_ac`` and ``PpLayerSetting`` on the new one.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest
import yaml

from ms_tune.dialects.mindformers.placement import KEYS
from ms_tune.facts.migration import callback_rows, rows
from ms_tune.facts.query import load
from ms_tune.source.yaml import SourceFile, parse_source
from ms_tune.workflows.migrate.draft import list_leaves
from ms_tune.workflows.migrate.result import Fate, Migration
from ms_tune.workflows.migrate.write import list_comments
from tests.jobs import migrate_source, read_recompute
from tests.oracle import layer_setting, make_migration, pynative, wheels
from tests.oracle.models import Models
from tests.workflows.migrate.test_migrate import SOURCE

CASES = int(os.environ.get("MS_TUNE_ORACLE_CASES", "4"))
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))
SHIPPED = ("1.6", "1.7", "1.8", "1.9")
TARGETS = ("2.0", "2.1")
_MISSING = pynative.why_missing() or layer_setting.why_missing("1.9")
pytestmark = pytest.mark.skipif(_MISSING is not None, reason=str(_MISSING))
# Settings in `config.json` of DeepSeek-V3 that concern weights and layers.
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_nextn_predict_layers": 1,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_shared_experts": 1,
    "n_routed_experts": 256,
    "routed_scaling_factor": 2.5,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "qk_nope_head_dim": 128,
    "topk_group": 4,
    "n_group": 8,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "norm_topk_prob": True,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 163840,
    "rope_theta": 10000,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}


class Sides:
    """The real code of both sides."""

    def __init__(self, target: str, models: Models) -> None:
        self.target = target
        self.dynamic = pynative.Oracle(f"{target}.0")
        self.dynamic.devices = 1024
        self._models = models

    def loads(self, config: dict[str, Any]) -> None:
        """Check that ``TrainConfig`` accepts the file, and the model's class and network its section."""
        self.dynamic._config["TrainConfig"].from_dict(copy.deepcopy(config))
        made = self._models.make(config["model"])
        assert made.error is None, (made.error, made.text)

    def same_layers(self, source: SourceFile, release: str, config: dict[str, Any]) -> int:
        """Compare the layers of both sides: stage, chunk, and full recomputation."""
        old = self.run_framework(source, release)
        assert old.exception is None, old.text
        model = config["model"]
        layers, ahead = model["num_hidden_layers"], model.get("num_nextn_predict_layers", 0)
        new = self.dynamic.ask(copy.deepcopy(config), layers, ahead)
        assert new.exception is None, (new.exception, new.text)
        stages = config["parallelism"].get("pipeline_parallel", 1)
        places = {
            layer: (number % stages, number // stages)
            for number, (first, last) in enumerate(new.ranges)
            for layer in range(first, last + 1)
        }
        for layer in old.layers:
            number = layer["layer"]
            assert (layer["stage"], layer["chunk"]) == places[number], (number, new.ranges)
            assert layer["full"] == (number in new.full), (number, sorted(new.full))
        return len(old.layers)

    @staticmethod
    def run_framework(source: SourceFile, release: str) -> layer_setting.Outcome:
        """Return the result of the old side's own code for a config."""
        inputs = read_recompute(source, release)
        values = dict(zip(KEYS, copy.deepcopy(tuple(inputs.values)), strict=True))
        return layer_setting.Oracle(release).ask(inputs, values)


@pytest.fixture(scope="module", params=TARGETS if os.environ.get("MS_TUNE_TEST_MORE") else TARGETS[-1:])
def sides(request: pytest.FixtureRequest) -> Iterator[Sides]:
    found = wheels.wheel(request.param)
    if isinstance(found, str):
        pytest.skip(found)
    with Models(request.param, 1) as models:
        yield Sides(request.param, models)


def shipped() -> dict[str, tuple[str, str]]:
    """Return every training config of the wheels once: its name with its first release, and both."""
    found: dict[str, tuple[str, str]] = {}
    texts = set()
    for release in SHIPPED:
        path = wheels.wheel(release)
        if isinstance(path, str):
            pytest.skip(path)
        for name, text in wheels.configs(release).items():
            if text not in texts and yaml.safe_load(text).get("run_mode") in {"train", "finetune"}:
                texts.add(text)
                found[f"{release} {name}"] = (release, text)
    return found


def checked(source: SourceFile, release: str, target: str, model_config: Path | None = None) -> Migration:
    """Migrate a config, and check that every key has a fate."""
    found = migrate_source(source, target, version=release, model_config=model_config)
    assert len(found.entries) == len(list(list_leaves(source.data)))
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_is_a_key_of_the_real_classes(target: str) -> None:
    top = pynative.Oracle(f"{target}.0")._config["TrainConfig"]
    for row in rows(target) + callback_rows():
        kind: Any = top
        for part in row.to:
            if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
                break
            fields = {one.name: one.type for one in dataclasses.fields(kind)}
            assert part in fields or getattr(kind, "allow_extra", False), (row.path, row.to)
            found = fields.get(part)
            kind = next((one for one in get_args(found) if isinstance(one, type)), found)


@pytest.mark.parametrize("target", TARGETS)
def test_a_row_names_a_file_of_the_release(target: str) -> None:
    archive = wheels.wheel(target)
    if isinstance(archive, str):
        pytest.skip(archive)
    there = set(wheels.opened(archive).namelist())
    named = {f"mindformers/{row.source}" for row in rows(target)}
    assert sorted(named - there) == []


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_read_nowhere_is_what_the_sources_say(target: str) -> None:
    assert load("migration")["unread"][target] == make_migration.unread(target)


@pytest.mark.slow
def test_every_shipped_training_config(sides: Sides) -> None:
    outcomes = Counter[str]()
    for name, (release, text) in shipped().items():
        source = parse_source(text, Path(name))
        found = checked(source, release, sides.target)
        unknown = [one.name for one in found.questions if one.why and one.why.id == "migrate.why.unknown"]
        assert unknown == [], name
        if found.refused:
            assert found.blocking or found.missing
            outcomes[f"refused: {', '.join(sorted({one.name for one in found.blocking})) or 'what is missing'}"] += 1
            continue
        there = {line.rstrip() for line in found.text.splitlines()}
        lost = [text for _, text in list_comments(source) if not any(line.endswith(text) for line in there)]
        assert lost == [], name
        config = yaml.safe_load(found.text)
        if "model" not in config:  # it is in a folder that the wheels do not contain
            assert any(one.name == "pretrained_model_dir" for one in found.questions), name
            assert [one.name for one in found.proof if one.holds is False] == ["lints"], (name, found.proof)
            with pytest.raises(TypeError, match="model_type"):
                sides.loads(config)
            sides.loads(config | {"model": {"model_type": "qwen3", "architectures": "Qwen3ForCausalLM"}})
            outcomes["written but for the model"] += 1
            continue
        sides.loads(config)
        layers = sides.same_layers(source, release, config)
        assert all(one.holds is not False for one in found.proof), (name, found.proof)
        outcomes[f"migrated, {'proved' if found.exit_code == 0 else 'open'} ({layers} layers)"] += 1
    assert any(one.startswith("migrated, proved") for one in outcomes)


@pytest.mark.slow
def test_shipped_configs_with_their_models_folder(sides: Sides, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DEEPSEEK), encoding="utf-8")
    done = 0
    for name, (release, text) in shipped().items():
        if "DeepSeek" not in str(yaml.safe_load(text).get("pretrained_model_dir")):
            continue
        found = checked(parse_source(text, Path(name)), release, sides.target, tmp_path)
        assert not found.refused, (name, found.blocking)
        config = yaml.safe_load(found.text)
        sides.loads(config)
        assert all(one.holds is not False for one in found.proof), (name, found.proof)
        done += 1
    assert done > 1


def random_config(random: Random) -> dict[str, Any]:
    """Return the example with another placement, lists, batch and model."""
    config: dict[str, Any] = yaml.safe_load(SOURCE)
    model, parallel = config["model"]["model_config"], config["parallel_config"]
    stages, chunks = random.choice((1, 2, 4)), random.choice((1, 1, 2))
    chunks = chunks if stages > 1 else 1
    layers = stages * chunks * random.randint(1, 3)
    parallel |= {"pipeline_stage": stages, "micro_batch_num": stages * random.randint(1, 3)}
    parallel |= {"data_parallel": random.choice((1, 2, 4)), "model_parallel": random.choice((1, 2))}
    model |= {
        "num_hidden_layers": layers,
        "num_nextn_predict_layers": random.randint(0, 1),
        "pp_interleave_num": chunks,
    }
    model["offset"] = 0
    if stages > 1 and layers > stages * chunks and random.random() < 0.6:
        even = [[0] * stages for _ in range(chunks)]
        even[0][0], even[-1][-1] = 1, -1
        model["offset"] = even if chunks > 1 else even[0]
    if chunks > 1:
        config["parallel"]["pipeline_config"] = {"pipeline_interleave": True, "pipeline_scheduler": "1f1b"}
    least = layers // (stages * chunks) - (1 if model["offset"] else 0)  # of a cell
    lists = [[random.randint(0, least) for _ in range(stages)] for _ in range(chunks)]
    config["recompute_config"]["recompute"] = random.choice((True, False, lists if chunks > 1 else lists[0]))
    config["runner_config"]["batch_size"] = random.choice((1, 2))
    model["n_routed_experts"], model["first_k_dense_replace"] = (
        random.choice((16, 32)),  # of the class's eight groups: one expert in each is refused
        random.randint(0, min(2, layers)),
    )
    for section, key in (("optimizer", "eps"), ("parallel_config", "use_seq_parallel"), ("runner_wrapper", "type")):
        if random.random() < 0.3:
            config[section].pop(key)
    return config


@pytest.mark.slow
def test_random_configs(sides: Sides) -> None:
    random = Random(f"{SEED} {sides.target}")  # noqa: S311 - test data
    outcomes = Counter[str]()
    for _ in range(CASES):
        text = yaml.safe_dump(random_config(random), sort_keys=False)
        source = parse_source(text, Path("a.yaml"))
        found = checked(source, "1.9", sides.target)
        assert not found.refused, text
        config = yaml.safe_load(found.text)
        sides.loads(config)
        sides.same_layers(source, "1.9", config)
        failed = [one for one in found.proof if one.holds is False]
        assert failed == [], (text, failed)
        outcomes[f"{found.exit_code}"] += 1
        assert all(one.fate is not Fate.ASK for one in found.entries), (text, found.questions)
