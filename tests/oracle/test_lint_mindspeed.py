"""Compare lint's errors in MindSpeed-Core-MS configs with the exceptions of loading them.

The packaged templates, with one or two settings changed or removed, are loaded by the real ``init_configs_from_yaml`` with
MindSpore's real argument checks (see :mod:`tests.oracle.mindspeed_config`).
"""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from ms_tune.diagnostics import Severity
from ms_tune.enums import Dialect
from ms_tune.facts.keys import Key, tables
from ms_tune.facts.query import REQUIRED, data_folder
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language
from tests.oracle import mindspeed_config, wheels
from tests.oracle.amount import cases
from tests.oracle.whole_cases import left_out

CASES = cases(50, 250)
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))
_SECONDS = 600
_ODD: tuple[Any, ...] = (None, True, False, 0, -1, 1, 2, 1.5, "x", "", [], {}, [1], ["a"], {"a": 1}, "1", [[1]])
_REMOVED = object()
# These checks concern errors when the model, the schedule or the optimizer is built, after loading.
_LATER = frozenset(
    f"MST{number}"
    for number in (
        *(
            607,
            613,
            614,
            616,
            617,
            620,
            622,
            629,
            631,
            632,
            633,
            634,
            637,
            641,
            643,
            645,
            646,
            647,
            648,
            649,
            650,
            653,
            657,
        ),
        *(658, 659, 667, 669, 670, 683, 686, 687, 689, 694),
        673,  # r0.1.0's class of the model wants training_config, that of the wheel does not
    )
)
# Read when the model is built, or only together with another setting; loading accepts any value.
_READ_LATER = frozenset(
    {
        *("lora_config.lora_alpha", "lora_config.lora_dropout", "lora_config.lora_rank", "model_config.fp8_format"),
        *("model_config.kv_channels", "model_config.seq_length", "optimizer_config.start_weight_decay"),
        *("parallel_config.context_parallel_algo", "training_config.delay_grad_reduce", "training_config.loss_scale"),
        # Whether a file of that name exists.
        "training_config.profile_dynamic_profiler_config_path",
    }
)
# Keys for which false values are equal to a missing value.
_OR_NOTHING = frozenset(
    {"model_config.fa_config", "training_config.compile_cache_path", "training_config.profile_save_path"}
)
# Comparisons in which Python treats a bool as a number.
_BOOL_IS_A_NUMBER = frozenset({"model_config.fa_config.sparse_mode", "model_config.rotary_config.rotary_base"})


REQUIRED_KEYS = [".".join(key.path) for key in tables(Dialect.MINDSPEED_MS) if key.default == REQUIRED]


@cache
def templates() -> tuple[dict[str, Any], ...]:
    """Return the packaged configs of the dialect."""
    folder = data_folder("yaml_templates") / "mindspeed_ms"
    files = sorted(Path(str(folder)).glob("*.yaml"))
    return tuple(yaml.safe_load(file.read_text(encoding="utf-8")) for file in files)


def changed(config: dict[str, Any], key: Key, value: object) -> dict[str, Any]:
    """Return the config with another value for a key, or without it."""
    config = copy.deepcopy(config)
    section: dict[str, Any] = config
    for part in key.path[:-1]:
        if not isinstance(section.get(part), dict):
            section[part] = {}
        section = section[part]
    if value is _REMOVED:
        section.pop(key.name, None)
    else:
        section[key.name] = copy.deepcopy(value)
    return config


def random_config(random: Random) -> dict[str, Any]:
    """Return a template with many of its keys left out, and one or two changed."""
    # Settings without a default usually stay: without them nothing else is checked.
    config = left_out(random, random.choice(templates()), REQUIRED_KEYS if random.random() < 0.7 else ())
    keys = [
        key for key in tables(Dialect.MINDSPEED_MS) if "*" not in key.path and ".".join(key.path) not in _READ_LATER
    ]
    for _ in range(random.choice((1, 1, 2))):
        key = random.choice(keys)
        name = ".".join(key.path)
        value = random.choice((_REMOVED, *_ODD, *key.choices))
        if (name in _OR_NOTHING and not value) or (name in _BOOL_IS_A_NUMBER and isinstance(value, bool)):
            continue
        if name == "model_config":  # lint treats a model with hardly any size as a part of a config
            return config if isinstance(value, dict) else changed(config, key, value)
        config = changed(config, key, value)
    return config


@pytest.fixture(scope="module")
def wheel() -> str:
    found = wheels.wheel("1.6")
    if isinstance(found, str):
        pytest.skip(found)
    if importlib.util.find_spec("mindspore") is None:
        pytest.skip("MindSpore is not installed: its argument checks are part of the oracle")
    return str(found)


def raised_by_framework(wheel: str, texts: list[str]) -> list[str | None]:
    """Return the exception of loading each config."""
    done = subprocess.run(
        [sys.executable, str(mindspeed_config.__file__), wheel],
        input="".join(f"{json.dumps(text)}\n" for text in texts),
        check=True,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def errors(text: str) -> list[str]:
    """Return lint's errors."""
    found = lint(parse_source(text, Path("a.yaml")), Dialect.MINDSPEED_MS, built_in(Dialect.MINDSPEED_MS), version=None)
    return [f"{one.id} {one.message.say(Language.EN)}" for one in found if one.severity is Severity.ERROR]


def differs(raised: str | None, expected: list[str]) -> bool:
    """Return whether loading fails without an error of lint, or succeeds with an error of lint about loading."""
    return not expected if raised else any(one.partition(" ")[0] not in _LATER for one in expected)


def test_random_configs(wheel: str) -> None:
    random = Random(SEED)  # noqa: S311 - the same cases every time
    texts = [yaml.safe_dump(config, sort_keys=False) for config in (random_config(random) for _ in range(CASES))]
    raised = raised_by_framework(wheel, texts)
    assert len(raised) == CASES
    wrong = [
        f"framework: {what}\nlint: {expected}\n{text}"
        for text, what, expected in zip(texts, raised, map(errors, texts), strict=True)
        if differs(what, expected)
    ]
    listed = "\n".join(one.partition("\ntraining_config")[0] for one in wrong)
    assert not wrong, f"{len(wrong)} of {CASES}\n{listed}\n{wrong[0]}"
    seen = Counter((what or "fine").partition(":")[0] for what in raised)
    assert seen["fine"] > CASES // 10


def test_templates_load(wheel: str) -> None:
    texts = [yaml.safe_dump(config, sort_keys=False) for config in templates()]
    assert raised_by_framework(wheel, texts) == [None] * len(texts)
