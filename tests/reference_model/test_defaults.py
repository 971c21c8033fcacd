"""Sizes that MindFormers' model classes fill in: the table beside the classes of the wheels, and what becomes of them."""

from __future__ import annotations

import ast
import copy
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ms_tune.dryrun import dynamic as reference
from ms_tune.dryrun.request import DryrunRequest, PreparedRun
from ms_tune.errors import ConfigError
from ms_tune.frameworks.dialect import Dialect
from ms_tune.reference_model.defaults import DEFAULTS
from ms_tune.reference_model.job import ReferenceJob
from ms_tune.texts import Language, render
from tests.dryrun.configs import source_of
from tests.oracle import wheels
from tests.reference_model.configs import CASES

SIZES = {key for sizes in DEFAULTS.values() for key in sizes}
# What the reader of these configs takes for every class where the config does not say.
COMMON = {
    "hidden_act": "silu",
    "normalization": "RMSNorm",
    "gated_linear_unit": True,
    "add_bias_linear": False,
    "tie_word_embeddings": False,
    "moe_layer_freq": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": None,
    "compute_dtype": "bf16",
    "layernorm_compute_dtype": "fp32",
    "rotary_dtype": "fp32",
}


@cache
def classes(version: str) -> dict[str, dict[str, Any]]:
    """By model type, what the class of a release fills in; as its source says, nothing is run."""
    found = wheels.wheel(version)
    if isinstance(found, str):
        pytest.skip(found)
    made: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(found) as archive:
        for name in archive.namelist():
            if name.startswith("mindformers/models/") and Path(name).name.startswith("configuration_"):
                for node in ast.walk(ast.parse(archive.read(name))):
                    if isinstance(node, ast.ClassDef):
                        made |= defaults_of(node)
    return made


def defaults_of(node: ast.ClassDef) -> dict[str, dict[str, Any]]:
    kinds = [
        ast.literal_eval(line.value)
        for line in node.body
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "model_type"
    ]
    made = [line for line in node.body if isinstance(line, ast.FunctionDef) and line.name == "__init__"]
    if not kinds or not made:
        return {}
    (init,) = made
    found: dict[str, ast.expr] = {}
    for call in init.decorator_list:
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "register_mf_model_parameter":
            found |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    named = [argument.arg for argument in init.args.args][-len(init.args.defaults) :]
    found |= dict(zip(named, init.args.defaults, strict=True))
    wanted = {key: value for key, value in found.items() if key in SIZES | COMMON.keys()}
    return {kinds[0]: {key: ast.literal_eval(value) for key, value in wanted.items()}}


@pytest.mark.parametrize("version", ["2.0", "2.1"])
@pytest.mark.parametrize("kind", DEFAULTS)
def test_sizes_are_those_of_the_class(kind: str, version: str) -> None:
    of_class = classes(version)[kind]
    assert {key: value for key, value in of_class.items() if key in SIZES} == DEFAULTS[kind]


@pytest.mark.parametrize("version", ["2.0", "2.1"])
@pytest.mark.parametrize("kind", DEFAULTS)
def test_the_rest_is_the_same_in_every_class(kind: str, version: str) -> None:
    rest = {key: value for key, value in classes(version)[kind].items() if key in COMMON}
    assert rest == {key: COMMON[key] for key in rest}


def prepared(config: dict[str, Any], devices: int) -> PreparedRun:
    request = DryrunRequest(config=Path("config.yaml"), reference=True)
    return reference.prepare(source_of(config), "config.yaml", request, devices, Dialect.MINDFORMERS_PYNATIVE)


def without(name: str, *keys: str) -> dict[str, Any]:
    config = copy.deepcopy(CASES[name].config)
    for key in keys:
        del config["model"][key]
    return config


def test_a_size_that_is_missing_is_taken_and_told() -> None:
    run = prepared(without("DeepSeek-V3", "kv_lora_rank", "n_routed_experts"), 8)
    assert isinstance(run.job, ReferenceJob)
    shape = run.job.config.shape
    assert shape.latent is not None
    assert shape.latent.key_value_rank == 512
    assert shape.experts is not None
    assert shape.experts.count == 256
    for language in Language:
        told = [render(message, language) for message in run.warnings if message.id == "reference.defaults"]
        assert [("kv_lora_rank: 512" in text, "n_routed_experts: 256" in text) for text in told] == [(True, True)]


def test_another_name_of_a_size_counts_and_so_does_null() -> None:
    config = without("Qwen3-MoE", "num_experts", "num_hidden_layers")
    config["model"] |= {"num_moe_experts": 8, "num_layers": 4}
    assert not any(message.id == "reference.defaults" for message in prepared(config, 8).warnings)
    config = without("DeepSeek-V3, without pipeline", "q_lora_rank")
    config["model"]["q_lora_rank"] = None
    run = prepared(config, 4)
    assert isinstance(run.job, ReferenceJob)
    assert run.job.config.shape.latent is not None
    assert run.job.config.shape.latent.query_rank is None
    assert not any(message.id == "reference.defaults" for message in run.warnings)


def test_a_model_of_a_class_that_is_not_known_needs_all_its_sizes() -> None:
    config = without("Qwen3", "vocab_size")
    config["model"]["model_type"] = "of_my_own"
    with pytest.raises(ConfigError, match="vocab_size"):
        prepared(config, 4)
