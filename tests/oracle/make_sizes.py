"""Writes ``ms_tune/facts/data/sizes.json``: the sizes of public models, each read from a public file.

Run by hand: ``MS_TUNE_SIZES_SOURCES=FOLDER python -m tests.oracle.make_sizes``; the folder contains a git clone ``OWNER+NAME`` of every
repository of ``tests/data/public_models.yaml`` (or ``OWNER+NAME/repo``). Nothing is run: the files are read at the commit, and their settings get the names
that they have in a ``config.json`` of Hugging Face.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from ms_tune.facts import query
from tests.files import read_data

SOURCES = "MS_TUNE_SIZES_SOURCES"
# Commits, classes, names of settings, and the models with the files that they are read from.
TABLES = read_data("public_models.yaml")
# Settings that other types do not read.
_ONLY = {
    "use_qk_norm": ("glm4_moe",),
    "attention_bias": ("glm4", "glm4_moe"),
    "bias": ("PanguEmbedded", "internlm", "internlm3"),
    "num_key_value_heads": tuple(kind for kind in TABLES["classes"] if not kind.startswith("deepseek")),
}
_EXPERTS = {"mixtral": "num_local_experts", "qwen2_moe": "num_experts", "qwen3_moe": "num_experts"}
_EXPERT_COUNTS = ("expert_num", "n_expert", "num-experts")


def made(sources: Path) -> dict[str, dict[str, Any]]:
    """The models, by name, in the order of the table."""
    models = {}
    for name, kind, repository, file, inside, *more in TABLES["models"]:
        commit = TABLES["commits"][repository]
        folder = sources / repository.replace("/", "+")
        folder = folder / "repo" if (folder / "repo").is_dir() else folder
        shown = ["git", "-C", str(folder), "show", f"{commit}:{file}"]
        text = subprocess.run(shown, capture_output=True, check=True, text=True).stdout
        config = _config(_settings(file, text, inside) | dict(*more), kind)
        models[name] = {"repository": repository, "file": file, "commit": commit, "config": config}
    return models


def _settings(file: str, text: str, inside: str) -> dict[str, Any]:
    if file.endswith(".md"):
        return dict(json.JSONDecoder().raw_decode(text[text.index(f"{inside}\n") + len(inside) :].lstrip())[0])
    if file.endswith(".json"):
        return dict(json.loads(text))
    if file.endswith(".yaml"):
        data = yaml.safe_load(text)
        return {**(data.get("moe_config") or {}), **data["model"]["model_config"]}
    return _arguments(text) if file.endswith(".sh") else _of_python(ast.parse(text), inside)


def _arguments(text: str) -> dict[str, Any]:
    """The whole numbers among the arguments; a variable or a sum of two has the value that the script gives it."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    known = dict(re.findall(r"^(\w+)=\"?(?:\$\{\w+:-)?(\d+)\b", lines, re.MULTILINE))
    lines = re.sub(r"\$\{?(\w+)\}?", lambda found: known.get(found[1], found[0]), lines)
    lines = re.sub(r"\$\(\((\w+) \+ (\w+)\)\)", lambda one: str(int(known[one[1]]) + int(known[one[2]])), lines)
    found: dict[str, Any] = {name: int(value) for name, value in re.findall(r"--([\w-]+) +(\d+)(?=\s)", lines)}
    dense = next((known[name] for name in ("N_DENSE_LAYERS", "FIRST_K_DENSE_REPLACE") if name in known), None)
    if dense is not None and int(dense):
        found["first_k_dense_replace"] = int(dense)
    found |= {"use_qk_norm": "--qk-layernorm" in lines, "attention_bias": "--add-qkv-bias" in lines}
    return {**found, "tie_word_embeddings": "--untie-embeddings-and-output-weights" not in lines}


def _of_python(tree: ast.Module, inside: str) -> dict[str, Any]:
    """The settings of a dictionary under a key, of a call of ``dict`` with this name, or a class's defaults."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == inside:
                    return dict(ast.literal_eval(value))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "dict":
            written = {
                one.arg: one.value.value for one in node.keywords if isinstance(one.value, ast.Constant) and one.arg
            }
            if written.get("name") == inside:
                return dict(written)
        elif isinstance(node, ast.ClassDef) and node.name == inside:
            fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
            begin = next(one for one in node.body if isinstance(one, ast.FunctionDef)).args
            names = [one.arg for one in begin.args][-len(begin.defaults) :] if begin.defaults else []
            values: dict[str, ast.expr] = dict(zip(names, begin.defaults, strict=True))
            values |= {ast.unparse(one.target): one.value for one in fields if one.value}
            return {name: ast.literal_eval(value) for name, value in values.items()}
    raise LookupError(inside)


def _config(settings: dict[str, Any], kind: str) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for key, value in settings.items():
        own = (
            _EXPERTS.get(kind, "n_routed_experts")
            if key in _EXPERT_COUNTS
            else TABLES["names"].get(key, key.replace("-", "_"))
        )
        if own == "head_size":
            own = "head_dim"
        if value is not None and not (own == "vocab_size" and key == "vocab_size" and own in named):
            named[own] = int(value) if isinstance(value, float) and value.is_integer() else value
    shared = named.pop("shared_width", None)
    if kind == "qwen2_moe":
        several = named.pop("n_shared_experts", None)
        shared = shared or (several and several * named["moe_intermediate_size"])
        named |= {"shared_expert_intermediate_size": shared} if shared else {}
    elif shared:
        named["n_shared_experts"] = shared // named["moe_intermediate_size"]
    for key, kinds in _ONLY.items():
        if kind not in kinds:
            named.pop(key, None)
    if not kind.startswith(("deepseek", "telechat3_moe")):
        named.setdefault("num_key_value_heads", named["num_attention_heads"])  # null in the classes: as many
    if not named.get("num_experts", 1) or not named.get("n_routed_experts", 1):
        named = {key: value for key, value in named.items() if "expert" not in key}
    return {
        "model_type": kind,
        "architectures": [TABLES["classes"][kind]],
        **{key: named[key] for key in TABLES["kept"] if key in named},
    }


def written(content: dict[str, Any], models: dict[str, dict[str, Any]]) -> str:
    """The data file's text: a model a line."""
    kept = {key: value for key, value in content.items() if key != "models"}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in models.items())
    head = "".join(
        f' "{key}": {{\n'
        + ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in part.items())
        + "\n },\n"
        for key, part in kept.items()
        if isinstance(part, dict)
    )
    return f'{{\n "source": {json.dumps(kept["source"])},\n{head} "models": {{\n{lines}\n }}\n}}\n'


if __name__ == "__main__":
    path = Path(query.__file__).with_name("data") / "sizes.json"
    path.write_text(written(json.loads(path.read_text("utf-8")), made(Path(os.environ[SOURCES]))), "utf-8")
