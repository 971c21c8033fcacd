"""Lint every config of the released wheels, unchanged and with a misspelt key."""

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

SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# Found by hand audit: 45 layers over 8 stages with offset 0 stop LayerSetting.
DEFECTS = {("pretrain_telechat3_105b_a4b_4k.yaml", "MST302")}


@cache
def configs(version: str) -> tuple[tuple[str, str], ...]:
    """Return the YAML files in the wheel of a release."""
    found = wheels.wheel(version)
    if isinstance(found, str):
        pytest.skip(found)
    with zipfile.ZipFile(found) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith((".yaml", ".yml")))
        return tuple((name, archive.read(name).decode("utf-8")) for name in names)


def findings(text: str, version: str, name: str = "a.yaml") -> list[tuple[str, str, str]]:
    """Return id, severity and message of the findings for the release that contains the config."""
    source = parse_source(text, Path(name))
    dialect = recognise(source.data).dialect
    if dialect is None:
        return []
    served = version if dialect is not Dialect.MINDFORMERS_PYNATIVE or version >= "2.0" else None
    found = lint(source, dialect, built_in(dialect), served)
    return [(one.id, one.severity.value, one.message.say(Language.EN)) for one in found]


@pytest.mark.slow
@pytest.mark.parametrize("version", wheels.RELEASES)
def test_errors_in_released_configs_are_real(version: str) -> None:
    errors = set()
    for name, text in configs(version):
        found = findings(text, version, name)
        assert not [message for check, _, message in found if check == "MST001"], name
        errors |= {(Path(name).name, check) for check, severity, _ in found if severity == Severity.ERROR.value}
    assert errors == (DEFECTS if version >= "1.9" else set())


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.7", "1.9", "2.1"])
def test_misspelt_keys_are_reported_with_the_right_word(version: str) -> None:
    random, tried = Random(SEED), 0  # noqa: S311 - the same slips every time
    for name, text in configs(version):
        data = yaml.load(text, Loader)  # noqa: S506 - one of the safe loaders
        trains = isinstance(data, dict) and data.get("run_mode") in ("train", "finetune")
        if not trains or recognise(data).dialect is not Dialect.MINDFORMERS:
            continue
        for section in ("parallel_config", "runner_config", "recompute_config"):
            for key in (one for one in sorted(data.get(section) or {}) if len(one) > 5):  # others are too short
                changed = copy.deepcopy(data)
                place = random.randrange(1, len(key) - 1)
                changed[section][key[:place] + key[place + 1 :]] = changed[section].pop(key)
                found = findings(yaml.dump(changed, Dumper=DUMPER, sort_keys=False), version)
                assert any(f"did you mean '{key}'" in message for _, _, message in found), (name, key)
                tried += 1
    assert tried > 50
