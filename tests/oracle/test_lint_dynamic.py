"""Compare lint's errors in dynamic-graph configs with the frameworks' behaviour.

MindFormers 2.0 and 2.1 and MindSpeed-Core-MS r0.1.0 run from the code in their wheels (see the imported modules): a
complete config is loaded and validated, then the layers are set.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ms_tune.diagnostics import Severity
from ms_tune.enums import Dialect
from ms_tune.facts.keys import tables
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language
from tests.oracle import mindspeed_cases, mindspeed_ms, pynative, pynative_cases, pynative_start, wheels
from tests.oracle.amount import cases
from tests.oracle.cases import as_read, text_of
from tests.oracle.models import Models
from tests.oracle.whole_cases import left_out, without_some

CASES = cases(50, 250)
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))
_ODD: tuple[Any, ...] = (None, True, False, 0, -1, 1, 2, 1.5, "x", "", [], {}, [1], ["a"], {"a": 1}, "1", [[1]])
# Settings that are only checked after loading: by the trainer, the command or the layers.
# The trainer, the data pipeline, the optimizer and the class of the network, which the oracle does not run.
_NOT_ASKED = ("MST585", "MST588", "MST596", "MST797")
_LATER = (
    *(("parallelism", f"{name}_parallel") for name in ("context", "tensor", "pipeline", "expert")),
    *(("run_mode",), ("recompute_comm", "enable"), ("recompute", "mode"), ("swap", "enable")),
    ("parallelism", "dense_fsdp_shard_size"),
)
# Additional values for a key of this name.
_FURTHER: dict[str, tuple[Any, ...]] = {
    "dataloader": ({"type": "HFDataLoader"}, {"type": "BlendedMegatronDatasetDataLoader", "config": {"seq_length": 8}}),
    "type": ("HFDataLoader", "OrderedIndexDataLoader", "AdamW", "Muon", "ConstantWarmUpLR", "MindDataset"),
    "target_layers": ([0, -1], [0, 1], -1),
    "target_modules": (".*linear_qkv", "*linear_qkv", "("),
    "output": ("a.csv", "a.jsonl", "a.b/c", "A.TXT"),
    "global_batch_size": (3, 4, 6),
    "local_batch_size": (3, 4, 16),
    "data_parallel_shard": (-3, 4),
    "lora_dropout": (0.5, 1.0, 0.999),
    "rampup_batch_size": ([1, 1], [0, 1, 1], [4, 4, -1], [4, 4, 9], [2, 3, 9], [3, 1, 9], [16, 1, 1], [8, 1, 0]),
    "balance_enabled": (True, True),
}
_SOUND: dict[str, Any] = {
    "training": {"global_batch_size": 8, "local_batch_size": 1},
    "optimizer": {"type": "AdamW"},
    "lr_scheduler": {"type": "ConstantWarmUpLR"},
    "train_dataset": {"dataloader": {"type": "MindDataset"}},
    "model": {"model_type": "qwen3", "architectures": "Qwen3ForCausalLM", "num_hidden_layers": 4},
}


mindformers = pynative.oracle_of("2.0.0", "2.1.0")


@pytest.fixture(scope="module")
def models(mindformers: pynative.Oracle) -> Iterator[Models]:
    with Models(mindformers._version[:3], 1) as started:
        yield started


@pytest.fixture(scope="module")
def mindspeed() -> mindspeed_ms.Oracle:
    found = wheels.wheel("1.6")
    if mindspeed_ms.MISSING or isinstance(found, str):
        pytest.skip(mindspeed_ms.MISSING or str(found))
    return mindspeed_ms.Oracle()


@cache
def start(version: str) -> pynative_start.Start:
    return pynative_start.Start(version)


def compare(config: dict[str, Any], raised: str | None, dialect: Dialect, version: str | None = None) -> str:
    """Compare lint's errors with the framework's exception: both or neither."""
    text = text_of(config)
    findings = lint(parse_source(text, Path("a.yaml")), dialect, built_in(dialect), version)
    messages = [
        f"{one.id} {one.message.say(Language.EN)}"
        for one in findings
        if (one.severity is Severity.ERROR and one.id not in _NOT_ASKED and one.consequence != "stops-later")
        or one.id == "MST001"
    ]
    assert not any(one.startswith("MST001") for one in messages), f"{messages}\n{text}"
    assert bool(messages) == bool(raised), f"framework: {raised}\nlint: {messages}\n{text}"
    return (raised or "fine").partition(":")[0]


def layers_of_mindformers(oracle: pynative.Oracle, random: Random) -> str:
    version = oracle._version
    config, layers, further = pynative_cases.random_config(random, version[:3])
    config = left_out(random, config)
    outcome = oracle.ask(as_read(config), layers, further)
    raised = outcome.exception
    if raised is None and any(last >= layers for _, last in outcome.ranges):
        # `TransformerBlock` takes the specification of each of its layers from a list, which the oracle lacks.
        raised = "IndexError"
    model = {"model_type": "q", "architectures": "Q", "num_layers": layers, "mtp_num_layers": further}
    return compare({**config, "model": model}, raised, Dialect.MINDFORMERS_PYNATIVE, version[:3])


def layers_of_mindspeed(oracle: mindspeed_ms.Oracle, random: Random) -> str:
    config = left_out(random, mindspeed_cases.random_config(random), ("model_config.num_layers",))
    stages = config.get("parallel_config", {}).get("pipeline_model_parallel_size", 1)
    # As many micro-batches as the schedule requires, which is checked after the layers.
    batches = {"dataset_config": {"micro_batch_num": stages}} if isinstance(stages, int) and stages > 1 else {}
    outcome = oracle.run(as_read(config))
    return compare({**config, **batches}, outcome.exception, Dialect.MINDSPEED_MS)


def whole_config(oracle: pynative.Oracle, models: Models, random: Random) -> str:
    """Return a valid config with one or two settings changed, added or removed, run up to the first step on one card.

    Many of the keys are left out. If the model's section is unchanged, the model's own classes run, too.
    """
    version = oracle._version[:3]
    known = tables(Dialect.MINDFORMERS_PYNATIVE, version)
    keys = [key for key in known if "*" not in key.path and key.path not in _LATER]
    keys = [key for key in keys if len(key.path) == 1 or key.path[0] != "model"]  # the trainer reads none of those here
    config = left_out(random, copy.deepcopy(_SOUND))
    config["model"] = model = without_some(random, _SOUND["model"])
    for _ in range(random.choice((0, 1, 1, 2))):
        path = random.choice(keys).path
        section = config
        for part in path[:-1]:
            if not isinstance(section.get(part), dict):
                section[part] = {}
            section = section[part]
        chance = random.random()
        if chance < 0.06:
            section["unknown_key"] = 1
        elif chance < 0.12:
            section.pop(path[-1], None)
        else:
            section[path[-1]] = copy.deepcopy(random.choice((*_ODD, *_FURTHER.get(path[-1], ()))))
    raised = None
    try:
        start(version).go(oracle._config["TrainConfig"].from_dict(as_read(config)))
    except Exception as error:  # noqa: BLE001 - whatever it is
        raised = f"{type(error).__name__}: {error}"
    if raised is None and config.get("model") == model:
        made = models.make(model)
        raised = made.error and f"{made.error}: {made.text}"
    return compare(config, raised, Dialect.MINDFORMERS_PYNATIVE, version)


def test_random_layers_of_mindformers(mindformers: pynative.Oracle) -> None:
    random = Random(SEED)  # noqa: S311 - the same cases every time
    seen = Counter(layers_of_mindformers(mindformers, random) for _ in range(CASES))
    assert seen["fine"] > CASES // 4


def test_random_configs_of_mindformers(mindformers: pynative.Oracle, models: Models) -> None:
    random = Random(SEED)  # noqa: S311 - as above
    seen = Counter(whole_config(mindformers, models, random) for _ in range(CASES))
    assert seen["fine"] > CASES // 10


def test_random_layers_of_mindspeed(mindspeed: mindspeed_ms.Oracle) -> None:
    random = Random(SEED)  # noqa: S311 - as above
    seen = Counter(layers_of_mindspeed(mindspeed, random) for _ in range(CASES))
    assert seen["fine"] > CASES // 4


def lint_ids(config: dict[str, Any], version: str) -> list[str]:
    text = text_of(config)
    dialect = Dialect.MINDFORMERS_PYNATIVE
    findings = lint(parse_source(text, Path("a.yaml")), dialect, built_in(dialect), version)
    return [one.id for one in findings if one.severity is Severity.ERROR]


def is_refused(call: Callable[[], None]) -> bool:
    try:
        call()
    except (NotImplementedError, ValueError, ZeroDivisionError):
        return True
    return False


def test_methods_of_context_parallelism(mindformers: pynative.Oracle) -> None:
    version = mindformers._version[:3]
    model = {"model_type": "qwen3", "architectures": "Q", "use_attn_mask_compression": True}
    for method, ways, degree in product(
        ("colossal", "Colossal", "ulysses", "ULYSSES", "hybrid", "Hybrid", "ring"), (2, 4, 6), (None, 1, 2, 3, 4, 6)
    ):
        section = {"context_parallel": ways, "context_parallel_method": method, "ulysses_degree_in_cp": degree}
        refused = is_refused(partial(start(version).context, method, ways, degree))
        assert bool(lint_ids({"parallelism": section, "model": model}, version)) == refused, section


def test_prediction_over_stages(mindformers: pynative.Oracle) -> None:
    version = mindformers._version[:3]
    if version == "2.0":
        pytest.skip("2.0 does not predict")
    for chunks, overlap, swap in product((1, 2), (False, True), (False, True)):
        section = {
            "pipeline_parallel": 2,
            "pipeline_parallel_interleave_num": chunks,
            "pipeline_parallel_overlap_b_f": overlap,
        }
        config = {
            "run_mode": "predict",
            "inference": {"max_new_tokens": 8},
            "checkpoint": {"load_path": "weights"},
            "parallelism": section,
            "training": {"global_batch_size": 8},
            "swap": {"enable": swap},
        }
        refused = is_refused(partial(start(version).predict, chunks, overlap=overlap, swap=swap))
        assert ("MST761" in lint_ids(config, version)) == refused, config
