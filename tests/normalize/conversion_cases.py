"""Generate random complete configs of every dialect for models with known layers, and configs from settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ms_tune.dialects.operators import Tree, dynamic_model, layer_model
from ms_tune.source.yaml import SourceFile, parse_source

if TYPE_CHECKING:
    from random import Random

STATIC = ("1.7", "1.8", "1.9", "2.0", "2.1")
DYNAMIC = ("2.0", "2.1")
LEGACY_MODELS = {
    "LlamaForCausalLM": "LlamaConfig",
    "ChatGLM2ForConditionalGeneration": "ChatGLM2Config",
}
# Patterns that match several operators; the others are paths in the trees.
_WIDE = (r".*\.norm", r"mlp\..*_fc1", r"feed_forward\.w[13]", r"mlp\.shared_experts\..*\.matmul", "(mlp|feed_forward)")


def source_of(data: object) -> SourceFile:
    """Return a config with these values."""
    return parse_source(yaml.safe_dump(data, sort_keys=False, width=10**6), Path("config.yaml"))


def trees_of(name: str, release: str, *, dynamic: bool) -> list[Tree]:
    """Return the kinds of layers of a model."""
    model = dynamic_model(name, release) if dynamic else layer_model(name, release, "silu" if name.islower() else "")
    return list(model.kinds) if model else []


@dataclass(frozen=True, slots=True)
class Case:
    """A config with the model's name, its layers without experts, and its prediction layers."""

    source: SourceFile
    release: str
    model: str = ""
    dense: int = 0
    ahead: int = 0


def random_case(random: Random, dialect: str) -> Case:
    """Return a valid config of a dialect."""
    if dialect == "mindspeed-ms":
        return Case(source_of(_mindspeed(random)), "r0.1.0")
    release = random.choice(STATIC if dialect == "mindformers" else DYNAMIC)
    data = _static(random, release) if dialect == "mindformers" else _dynamic(random, release)
    model = data["model"].get("model_config", data["model"])
    name = str(model.get("model_type", data["model"].get("arch", {}).get("type")))
    return Case(
        source_of(data), release, name, model.get("first_k_dense_replace", 0), model.get("num_nextn_predict_layers", 0)
    )


def _names(random: Random, trees: Sequence[Tree], *, operators: bool) -> list[str]:
    """Return paths of some operators, or also of modules."""

    def walk(tree: Tree, above: str = "") -> Iterator[str]:
        yield from (above + name for name in tree.operators)
        for name, cell in tree.cells:
            yield from walk(cell, f"{above}{name}.")

    usable = sorted({path for tree in trees for path in (walk(tree) if operators else tree.paths())})
    return random.sample(usable, random.choice((1, 1, 2, 3)))


def _cells(random: Random) -> tuple[int, int, list[list[int]]]:
    stages = random.choice((1, 1, 2, 3))
    chunks = random.choice((1, 1, 2)) if stages > 1 else 1
    return stages, chunks, [[random.randrange(1, 5) for _ in range(stages)] for _ in range(chunks)]


def _counts(random: Random, counts: list[list[int]]) -> list[Any]:
    rows = [[random.randrange(count + 1) for count in row] for row in counts]
    return rows if len(rows) > 1 else rows[0]


def _static(random: Random, release: str) -> dict[str, Any]:
    stages, chunks, counts = _cells(random)
    layers = sum(map(sum, counts))
    offset = [[count - layers // (stages * chunks) for count in row] for row in counts]
    core = random.random() < 0.6
    known = ["qwen3", "deepseek_v3", "qwen3_moe", *(["telechat3"] if release not in {"1.7", "1.8"} else [])]
    name = random.choice(known) if core else random.choice(list(LEGACY_MODELS))
    dense = random.randrange(layers + 1) if name == "deepseek_v3" else 0
    count = "num_hidden_layers" if core else "num_layers"
    model: dict[str, Any] = {count: layers, "offset": offset if chunks > 1 else offset[0]}
    if core:
        model |= {"model_type": name, "first_k_dense_replace": dense, "moe_layer_freq": 1, "hidden_act": "silu"}
        if name == "deepseek_v3":
            model["num_nextn_predict_layers"] = random.choice((0, 0, 1))
    else:
        model |= {"type": LEGACY_MODELS[name], "use_flash_attention": True}
    trees = trees_of(name, release, dynamic=False)
    recompute: dict[str, Any] = {}
    if random.random() < 0.6:
        recompute["recompute"] = _counts(random, counts)
    for key, operators in (("select_recompute", False), ("select_comm_recompute", True)):
        if random.random() < 0.6:
            names = [path.replace(".", r"\.") for path in _names(random, trees, operators=operators)]
            names += [random.choice(_WIDE)] * (random.random() < 0.3)
            recompute[key] = {each: _counts(random, counts) for each in names}
        elif random.random() < 0.5:
            recompute[key] = random.choice((True, False))
    config: dict[str, Any] = {
        "run_mode": "train",
        "use_legacy": not core,
        "parallel_config": {"pipeline_stage": stages},
        "model": {"model_config": model} if core else {"arch": {"type": name}, "model_config": model},
        "recompute_config": recompute,
    }
    if chunks > 1:
        model["pp_interleave_num"] = chunks
        config["parallel"] = {"pipeline_config": {"pipeline_interleave": True, "pipeline_scheduler": "1f1b"}}
    return config


def _dynamic(random: Random, release: str) -> dict[str, Any]:
    stages, chunks, counts = _cells(random)
    flat = [count for row in counts for count in row]
    layers = sum(flat)
    ends = [sum(flat[: place + 1]) for place in range(len(flat))]
    ranges = [f"{end - count}-{end - 1}" for end, count in zip(ends, flat, strict=True)]
    name = random.choice(("qwen3", "deepseek_v3"))
    dense = random.randrange(layers + 1)
    trees = trees_of(name, release, dynamic=True)

    def chosen() -> list[int]:
        # Counts in the other dialects apply to the first layers of a cell.
        found: list[int] = []
        for end, count in zip(ends, flat, strict=True):
            found += range(end - count, end - count + random.randrange(count + 1))
        return found or [0]

    config: dict[str, Any] = {
        "parallelism": {
            "pipeline_parallel": stages,
            "pipeline_parallel_interleave_num": chunks,
            "pipeline_parallel_layers_per_stage": [",".join(ranges[stage::stages]) for stage in range(stages)],
            "data_parallel_shard": 2,
        },
        "training": {"steps": 10},
        "model": {
            "model_type": name,
            "num_hidden_layers": layers,
            "first_k_dense_replace": dense,
            "moe_layer_freq": 1,
            "hidden_act": "silu",
            "num_nextn_predict_layers": random.choice((0, 0, 1)) if name == "deepseek_v3" else 0,
        },
    }
    mode = random.choice(("full", "select", "select"))
    config["recompute"] = {"mode": mode}
    if mode == "full" or random.random() < 0.5:
        config["recompute"]["full_recompute_layer"] = chosen()
    if mode == "select":
        config["recompute"]["select_module"] = {each: chosen() for each in _names(random, trees, operators=False)}
    if random.random() < 0.4:
        names = _names(random, trees, operators=True)
        config["recompute_comm"] = {"enable": True, "select_module": {each: chosen() for each in names}}
    return config


def _mindspeed(random: Random) -> dict[str, Any]:
    stages, chunks, counts = _cells(random)
    parallel: dict[str, Any] = {"pipeline_model_parallel_size": stages}
    if chunks > 1:
        parallel["virtual_pipeline_model_parallel_size"] = chunks
    if stages > 1:
        parallel["num_layer_list"] = counts if chunks > 1 else counts[0]
    full = [[random.randrange(count + 1) for count in row] for row in counts]
    lists: dict[str, Any] = {"recompute": full}
    for key in ("select_recompute", "select_comm_recompute"):
        if random.random() < 0.6:
            lists[key] = [
                [random.randrange(count - used + 1) for count, used in zip(row, uses, strict=True)]
                for row, uses in zip(counts, full, strict=True)
            ]
    parallel["recompute_config"] = {key: rows if chunks > 1 else rows[0] for key, rows in lists.items()}
    return {
        "training_config": {},
        "model_config": {"num_layers": sum(map(sum, counts)), "use_flash_attention": random.random() < 0.7},
        "parallel_config": parallel,
    }


def nested(values: Mapping[str, object]) -> dict[str, Any]:
    """Convert dotted keys to sections."""
    data: dict[str, Any] = {}
    for key, value in values.items():
        *path, name = key.split(".")
        section = data
        for part in path:
            section = section.setdefault(part, {})
        section[name] = value
    return data


def config_of(values: Mapping[str, object], dialect: str, model: Mapping[str, object]) -> SourceFile:
    """Return a config of a dialect with these settings, for a model."""
    data = nested(values)
    if dialect == "mindformers":
        data["run_mode"] = "train"
        data.setdefault("recompute_config", {})
        data["model"]["model_config"] |= model
    elif dialect == "mindformers-pynative":
        data.setdefault("parallelism", {})["data_parallel_shard"] = 2
        data["training"] = {"steps": 10}
        data["model"] |= model
    else:
        data["training_config"] = {}
        data.setdefault("model_config", {})["use_flash_attention"] = True
    return source_of(data)
