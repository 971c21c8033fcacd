"""Test settings that a config takes from other files: ``base_config`` and the model's ``config.json``."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import zipfile
from collections import OrderedDict
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from ms_tune.cli.main import main
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.query import VERSIONS
from ms_tune.job.detect import recognise
from ms_tune.job.includes import with_bases
from ms_tune.source.yaml import load_source
from tests.jobs import normalize_source
from tests.oracle import wheels

BASE = """\
trainer: {}
parallel_config: {pipeline_stage: 2, data_parallel: 4}
model: {model_config: {type: LlamaConfig, num_layers: 4, offset: 0}, arch: {type: LlamaForCausalLM}}
recompute_config: {recompute: [1, 0]}
"""
CORE = """\
use_legacy: False
trainer: {}
pretrained_model_dir: models/mine
parallel_config: {pipeline_stage: 2}
model: {model_config: {compute_dtype: bfloat16}}
recompute_config: {recompute: [1, 0]}
"""
MODEL = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 6}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_base_is_followed_relative_to_the_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "configs/base/common.yaml", BASE)
    config = write(
        tmp_path / "configs/a.yaml", "base_config: base/common.yaml\nrecompute_config: {recompute: [2, 2]}\n"
    )
    plan = normalize_source(load_source(config), "1.9")
    assert (plan.placement, plan.formative and plan.formative["layer_recompute"]) == (((2, 2),), [[2, 2]])
    assert plan.read_from == (str(tmp_path / "configs/base/common.yaml"),)
    assert main(["normalize-recompute", "--json", str(config)]) == 0
    assert json.loads(capsys.readouterr().out)["read_from"] == list(plan.read_from)
    assert main(["normalize-recompute", "--to", "mindformers-pynative", str(config)]) in (0, 1)
    assert "includes settings of" in capsys.readouterr().err
    assert main(["normalize-recompute", str(config)]) == 0
    assert "includes settings of" in capsys.readouterr().err


def test_explicit_lists_go_into_the_config_and_those_of_a_base_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = write(tmp_path / "base.yaml", BASE.replace("[1, 0]}", "[1, 0], select_recompute: True}"))
    config = write(tmp_path / "a.yaml", "base_config: base.yaml\nrecompute_config:\n  recompute: True  # all\n")
    before = base.read_text()
    plan = normalize_source(load_source(config), "1.9").layers
    assert main(["normalize-recompute", "--lang", "en", "--diff", str(config)]) == 1
    assert "+  recompute: [2, 2]  # all" in capsys.readouterr().out
    assert main(["normalize-recompute", "--lang", "en", "--write", str(config)]) in (0, 1)
    output = capsys.readouterr().err
    assert f"recompute_config.select_recompute not written: it is in {base}:4" in output
    assert "its explicit form is " in output
    assert config.read_text() == "base_config: base.yaml\nrecompute_config:\n  recompute: [2, 2]  # all\n"
    assert base.read_text() == before
    assert normalize_source(load_source(config), "1.9").layers == plan
    assert main(["normalize-recompute", "--write", str(config)]) == 1  # the rest is in the base


def test_an_error_in_the_base_points_to_the_base(tmp_path: Path) -> None:
    base = write(tmp_path / "base.yaml", BASE.replace("pipeline_stage: 2", "pipeline_stage: x"))
    config = write(tmp_path / "a.yaml", "base_config: [base.yaml]\n")
    with pytest.raises(ConfigError) as caught:
        normalize_source(load_source(config), "1.9")
    assert (caught.value.path, caught.value.line) == (base, 2)


@pytest.mark.parametrize(
    ("base", "says"),
    [
        ("gone.yaml", "which is not a file"),
        ("[a.yaml]", "builds on this file"),
        ("b.yaml", "builds on this file"),
        ("../secret/base.yaml", "outside this config's folder"),
        ("/etc/hostname", "outside this config's folder"),
        ("link.yaml", "outside this config's folder"),
        ("7", "must be a file name"),
        ("{a: 1}", "must be a file name"),
        ("0.yaml", "a chain of more than 8 files"),
        ("list.yaml", "not a section in base_config"),
    ],
)
def test_bases_that_are_not_followed(tmp_path: Path, base: str, says: str) -> None:
    folder = tmp_path / "configs"
    config = write(folder / "a.yaml", f"base_config: {base}\nparallel_config: {{pipeline_stage: 2}}\n")
    write(folder / "b.yaml", "base_config: a.yaml\n")
    write(folder / "list.yaml", "parallel_config: [1]\n")
    for number in range(20):
        write(folder / f"{number}.yaml", f"base_config: {number + 1}.yaml\n")
    write(tmp_path / "secret/base.yaml", BASE)
    (folder / "link.yaml").symlink_to(tmp_path / "secret/base.yaml")
    with pytest.raises(ConfigError, match=says):
        with_bases(load_source(config))


def test_a_base_above_is_followed_from_a_folder_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "common/base.yaml", BASE)
    config = write(tmp_path / "configs/a.yaml", "base_config: ../common/base.yaml\n")
    with pytest.raises(ConfigError, match="outside"):
        with_bases(load_source(config))
    with monkeypatch.context() as context:
        context.chdir(tmp_path)
        assert with_bases(load_source(config)).data["recompute_config"] == {"recompute": [1, 0]}
    (tmp_path / ".git").mkdir()  # both files are of one repository
    assert with_bases(load_source(config)).data["recompute_config"] == {"recompute": [1, 0]}


def test_many_bases_are_bounded(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / f"{number}.yaml", f"base_config: [{', '.join([f'{number + 1}.yaml'] * 8)}]\n")
    write(tmp_path / "4.yaml", BASE)
    with pytest.raises(ConfigError, match="32 files in total"):
        with_bases(load_source(tmp_path / "0.yaml"))


def test_the_config_of_the_model_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(tmp_path / "configs/a.yaml", CORE)
    with pytest.raises(ConfigError, match=r"'models/mine' has no such file") as caught:
        normalize_source(load_source(config), "1.9")
    assert caught.value.hint is not None
    assert normalize_source(load_source(config), "1.9", 4).placement == ((2, 2),)
    model = write(tmp_path / "configs/models/mine/config.json", json.dumps(MODEL))
    plan = normalize_source(load_source(config), "1.9")
    assert (plan.placement, plan.read_from) == (((3, 3),), (str(model),))
    here = write(tmp_path / "work/models/mine/config.json", json.dumps({**MODEL, "num_hidden_layers": 8}))
    assert normalize_source(load_source(config), "1.9").placement == (
        (4, 4),
    )  # MindFormers searches from its working folder
    here.unlink()
    (tmp_path / "configs/b.yaml").write_text(CORE.replace("[1, 0]", "[True, 0]"))
    assert main(["normalize-recompute", "--write", "--framework-version", "1.9", str(tmp_path / "configs/b.yaml")]) == 0
    assert "recompute: [3, 0]" in (tmp_path / "configs/b.yaml").read_text()
    capsys.readouterr()
    assert main(["lint", "--json", str(config)]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["read_from"] == {str(config): [str(model)]}


@pytest.mark.parametrize("content", ["[]", "{", "[" * 100_000, '{"num_hidden_layers": "x"}', "x" * 2_000_000, "\0"])
def test_a_config_of_the_model_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    config = write(tmp_path / "a.yaml", CORE)
    write(tmp_path / "models/mine/config.json", content)
    with pytest.raises(ConfigError):
        normalize_source(load_source(config), "1.9")
    assert main(["lint", str(config)]) in (0, 1)
    assert "Traceback" not in capsys.readouterr().err


def test_legacy_models_have_their_sizes_in_the_config_alone(tmp_path: Path) -> None:
    config = write(tmp_path / "a.yaml", BASE + "pretrained_model_dir: models/mine\n")
    write(tmp_path / "models/mine/config.json", json.dumps(MODEL))
    plan = normalize_source(load_source(config), "1.9")
    assert (plan.placement, plan.read_from) == (((2, 2),), ())


def _loader(version: str) -> Any:  # noqa: ANN401 - the framework's function
    """Return ``MindFormerConfig._file2dict`` of a release, extracted from its wheel."""
    names: dict[str, Any] = {
        "os": os,
        "yaml": yaml,
        "OrderedDict": OrderedDict,
        "BASE_CONFIG": "base_config",
        "check_yaml_depth_before_loading": lambda _file: None,
    }
    for node in ast.parse(wheels.source(version, "tools/register/config.py")).body:
        if isinstance(node, ast.ClassDef) and node.name == "MindFormerConfig":
            kept = [one for one in node.body if getattr(one, "name", "") in ("_file2dict", "_merge_a_into_b")]
            made = ast.ClassDef(node.name, [], [], kept, [])
            exec(compile(ast.fix_missing_locations(ast.Module([made], [])), "config.py", "exec"), names)  # noqa: S102 - the point
    return names["MindFormerConfig"]._file2dict


def _random_section(random: Random, depth: int) -> Any:  # noqa: ANN401 - a value
    if depth and random.random() < 0.7:
        return {key: _random_section(random, depth - 1) for key in random.sample("abcd", random.randint(0, 3))}
    return random.choice([1, "x", [1, 2], None, True])


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_merged_as_the_framework_does(version: str, tmp_path: Path) -> None:
    missing = wheels.wheel(version)
    if isinstance(missing, str) or importlib.util.find_spec("yaml") is None:
        pytest.skip(str(missing))
    load, random = _loader(version), Random(3)  # noqa: S311 - the same cases every time
    refused = 0
    for number in range(80):
        folder = tmp_path / str(number)
        for name, bases in (("a", ["sub/b", "c"]), ("sub/b", ["../d"]), ("c", []), ("d", [])):
            data = {key: _random_section(random, 3) for key in random.sample("efgh", 3)}
            chosen = [f"{base}.yaml" for base in bases if random.random() < 0.8]
            if chosen:
                data["base_config"] = chosen if random.random() < 0.5 or len(chosen) > 1 else chosen[0]
            write(folder / f"{name}.yaml", yaml.safe_dump(data))
        try:
            expected = load(str(folder / "a.yaml"))
        except (AttributeError, TypeError):
            refused += 1
            with pytest.raises(ConfigError):
                with_bases(load_source(folder / "a.yaml"))
            continue
        assert with_bases(load_source(folder / "a.yaml")).data == expected
    assert 20 < refused < 60


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_configs_in_the_wheels(version: str, tmp_path: Path) -> None:
    """With the model's ``config.json`` in its folder all of them have a plan, except one that names no model."""
    wheel = wheels.wheel(version)
    if isinstance(wheel, str):
        pytest.skip(wheel)
    write(tmp_path / "model/config.json", json.dumps({**MODEL, "num_hidden_layers": 64}))
    missing, refused = 0, []
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if "configs/" not in name or not name.endswith(".yaml"):
                continue
            text = archive.read(name).decode()
            config = write(tmp_path / "a.yaml", text)
            if recognise(load_source(config).data).dialect is not Dialect.MINDFORMERS:
                continue
            try:
                normalize_source(load_source(config), version)
            except ConfigError:
                missing += 1
            config.write_text(re.sub(r"(?m)^pretrained_model_dir:.*", "pretrained_model_dir: model", text))
            try:
                normalize_source(load_source(config), version)
            except ConfigError:
                refused.append(name.rpartition("/")[2])
    assert missing > len(refused)
    assert refused == ["run_general_task.yaml"]
