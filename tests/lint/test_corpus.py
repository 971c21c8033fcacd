"""Every config inside the released wheels, as it is and with faults planted into it."""

from __future__ import annotations

import copy
import os
import zipfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from ms_tune.diagnostics import Severity
from ms_tune.enums import Dialect
from ms_tune.job.detect import recognise
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language
from tests.oracle import wheels

CASES = int(os.environ.get("MS_TUNE_ORACLE_CASES", "150"))
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# Found by hand audit: 45 layers over 8 stages with offset 0 stop LayerSetting.
DEFECTS = {("pretrain_telechat3_105b_a4b_4k.yaml", "MST302")}


@cache
def configs(version: str) -> tuple[tuple[str, str], ...]:
    """The YAML files in the wheel of a release."""
    found = wheels.wheel(version)
    if isinstance(found, str):
        pytest.skip(found)
    with zipfile.ZipFile(found) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith((".yaml", ".yml")))
        return tuple((name, archive.read(name).decode("utf-8")) for name in names)


def findings(text: str, version: str, name: str = "a.yaml") -> list[tuple[str, str, str]]:
    """Id, severity and message of what is found, for the release that the config came with."""
    source = parse_source(text, Path(name))
    dialect = recognise(source.data).dialect
    if dialect is None:
        return []
    served = version if dialect is not Dialect.MINDFORMERS_PYNATIVE or version >= "2.0" else None
    found = lint(source, dialect, built_in(dialect), served)
    return [(one.id, one.severity.value, one.message.say(Language.EN)) for one in found]


@pytest.mark.parametrize("version", wheels.RELEASES)
def test_errors_in_released_configs_are_real(version: str) -> None:
    errors = set()
    for name, text in configs(version):
        found = findings(text, version, name)
        assert not [message for check, _, message in found if check == "MST001"], name
        errors |= {(Path(name).name, check) for check, severity, _ in found if severity == Severity.ERROR.value}
    assert errors == (DEFECTS if version >= "1.9" else set())


def test_known_defects_are_found() -> None:
    (text,) = [text for name, text in configs("2.1") if name.endswith("pretrain_telechat3_105b_a4b_4k.yaml")]
    assert {"MST302", "MST511"} <= {check for check, _, _ in findings(text, "2.1")}  # the split, and profiler_level
    (text,) = [text for name, text in configs("1.9") if name.endswith("qwen3/pretrain_qwen3_32b_4k.yaml")]
    # As the file was before 1.7.0 was released.
    data = yaml.load(text, Loader)  # noqa: S506 - one of the safe loaders
    data["recompute_config"]["recompute_slice_activation"] = True
    assert "MST403" in {check for check, _, _ in findings(yaml.dump(data, Dumper=DUMPER), "1.9")}
    # As a config of the framework's own tests has it: paths are those inside a layer.
    (text,) = [text for name, text in configs("2.1") if name.endswith("deepseek4/pretrain_deepseek4_flash.yaml")]
    data = yaml.load(text, Loader)  # noqa: S506 - one of the safe loaders
    data["recompute"] = {"mode": "select", "select_module": {"layers.*.self_attention.*": ["0-15"]}}
    assert "MST712" in {check for check, _, _ in findings(yaml.dump(data, Dumper=DUMPER), "2.1")}


@cache
def _training() -> tuple[tuple[str, str, dict[str, Any]], ...]:
    """Static-graph training configs that have no error; they are shared, so that faults are planted into copies."""
    found = []
    for version in ("1.7", "1.9", "2.1"):
        for name, text in configs(version):
            data = yaml.load(text, Loader)  # noqa: S506 - one of the safe loaders
            trains = isinstance(data, dict) and data.get("run_mode") in ("train", "finetune")
            if trains and recognise(data).dialect is Dialect.MINDFORMERS and not _errors(data, version):
                found.append((version, name, data))
    return tuple(found)


def _errors(data: dict[str, Any], version: str) -> set[str]:
    text = yaml.dump(data, Dumper=DUMPER, sort_keys=False)
    return {check for check, severity, _ in findings(text, version) if severity == Severity.ERROR.value}


def _plant(random: Random, data: dict[str, Any]) -> str:
    """Plant one fault that stops MindFormers; what it is."""
    parallel = data["parallel_config"]
    kind = random.choice(("letters", "type", "length", "range", "section", "negative", "missing"))
    if kind == "letters":
        section = data[random.choice(("parallel_config", "runner_config", "recompute_config"))]
        key = random.choice(sorted(section))
        place = random.randrange(len(key) - 1)
        section[key[:place] + key[place + 1] + key[place] + key[place + 2 :] + "x"] = section.pop(key)
    elif kind == "type":
        parallel[random.choice(("data_parallel", "model_parallel", "micro_batch_num"))] = random.choice(
            ("2", True, 1.0, None, [1])
        )
    elif kind == "length":
        data["recompute_config"]["recompute"] = [0] * (parallel.get("pipeline_stage", 1) + random.choice((1, 5)))
    elif kind == "range":
        parallel[random.choice(("gradient_aggregation_group", "expert_parallel", "seq_split_num"))] = random.choice(
            (0, -1)
        )
    elif kind == "section":
        data[random.choice(("parallel_config", "runner_config", "recompute_config", "model"))] = random.choice(
            (True, "x", [1])
        )
    elif kind == "negative":
        data["recompute_config"]["recompute"] = [-1] + [0] * (parallel.get("pipeline_stage", 1) - 1)
    else:
        data[random.choice(("optimizer", "lr_schedule", "runner_wrapper"))].pop("type")
    return kind


@pytest.mark.slow
def test_every_planted_fault_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    random = Random(SEED)  # noqa: S311 - the same faults every time
    sound = [
        one
        for one in _training()
        if {"recompute_config", "optimizer", "lr_schedule", "runner_wrapper"} <= one[2].keys()
    ]
    assert len(sound) > 8
    planted = 0
    for _ in range(CASES):
        version, name, data = random.choice(sound)
        changed = copy.deepcopy(data)
        if "recompute_config" in changed and not isinstance(changed["recompute_config"], dict):
            continue
        kind = _plant(random, changed)
        planted += 1
        assert _errors(changed, version), f"{kind} in {name} of {version}\n{yaml.dump(changed, Dumper=DUMPER)}"
    with capsys.disabled():
        print(f"\n{planted} faults planted in {len(sound)} configs, all found")  # noqa: T201 - the count is the point


@pytest.mark.slow
def test_misspelt_keys_are_told_with_the_right_word(capsys: pytest.CaptureFixture[str]) -> None:
    random = Random(SEED)  # noqa: S311 - as above
    told = 0
    tried = 0
    for version, _, data in _training():
        for section in ("parallel_config", "runner_config", "recompute_config"):
            for key in sorted(data.get(section) or {}):
                if len(key) < 6:  # too short to be like anything
                    continue
                changed = copy.deepcopy(data)
                place = random.randrange(1, len(key) - 1)
                changed[section][key[:place] + key[place + 1 :]] = changed[section].pop(key)
                found = findings(yaml.dump(changed, Dumper=DUMPER, sort_keys=False), version)
                tried += 1
                told += any(f"did you mean '{key}'" in message for _, _, message in found)
    with capsys.disabled():
        print(f"\n{told} of {tried} misspelt keys told with the right word")  # noqa: T201 - as above
    assert tried > 50
    assert told == tried


# Where a name of a class stands, and values that stop a run behind its start: by the keys that have to be there.
_CLASSES = (
    "optimizer.type",
    "lr_schedule.type",
    "trainer.type",
    "runner_wrapper.type",
    "train_dataset_task.type",
    "train_dataset.data_loader.type",
)
_SLIPS: tuple[tuple[str, object], ...] = (
    ("runner_config.epochs", "two"),
    ("runner_config.epochs", 0),
    ("runner_config.batch_size", 0),
    ("runner_config.sink_mode", "Ture"),
    ("lr_schedule.learning_rate", "1e-5x"),
    ("lr_schedule.warmup_ratio", 1.5),
    ("train_dataset.num_parallel_workers", 0),
    ("context.mode", 3),
    ("run_mode", "trian"),
)


def _serious(data: dict[str, Any], version: str) -> set[tuple[str, object]]:
    text = yaml.dump(data, Dumper=DUMPER, sort_keys=False)
    grave = (Severity.ERROR.value, Severity.WARNING.value)
    return {(check, path) for check, severity, path in findings(text, version) if severity in grave}


@pytest.mark.slow
def test_slips_that_stop_a_run_behind_its_start_are_found() -> None:
    """In the configs of the newest release that have the key; a name of a class gets two letters exchanged."""
    planted = dict.fromkeys([*_CLASSES, *(dotted for dotted, _ in _SLIPS)], 0)
    for version, name, data in _training():
        if version != "2.1":
            continue
        before = _serious(data, version)
        for dotted, value in [*((one, None) for one in _CLASSES), *_SLIPS]:
            changed = copy.deepcopy(data)
            *way, key = dotted.split(".")
            section: Any = changed
            for step in way:
                section = section.get(step) if isinstance(section, dict) else None
            if not isinstance(section, dict) or section.get(key) is None:
                continue
            section[key] = _misspelt(section[key]) if value is None else value
            planted[dotted] += 1
            assert _serious(changed, version) - before, f"{dotted} in {name} of {version}"
    assert all(planted.values()), planted


def _misspelt(name: str) -> str:
    return name[:-2] + name[:-3:-1] if name[-1] != name[-2] else name[:-1]
