"""Writes ``ms_tune/facts/data/sizes.json``: the sizes of public models, each read from a public file.

Run by hand: ``MS_TUNE_SIZES_SOURCES=FOLDER python -m tests.oracle.make_sizes``; the folder contains a git clone ``OWNER+NAME`` of every
repository in ``COMMITS`` (or ``OWNER+NAME/repo``). Nothing is run: the files are read at the commit, and their settings get the names
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

SOURCES = "MS_TUNE_SIZES_SOURCES"
COMMITS = {
    "Ascend/MindSpeed-LLM": "b626d239cd49b7e681a170ba8c3472f713596476",
    "Lightning-AI/litgpt": "26857050fe3ff627cd714fe92f5838f51a3d5efa",
    "THUDM/slime": "624b824a898ab0ec1fcb4d373004c7f3852bf515",
    "Tele-AI/TeleChat2": "cd9287f3084d617f6c339b4e09a058656be91633",
    "citsjtu2020/LLM-Prof": "8434c8d19c396b2f95d92a67845a7c0a0e0dd512",
    "deepseek-ai/DeepSeek-V3": "9b4e9788e4a3a731f7567338ed15d3ec549ce03b",
    "inclusionAI/Ling": "314dc6c50adf2a00e25d0f3d00659259974035d2",
    "mindspore-ai/mindformers": "abc6846c2d1a0ab6cf3a757c2a248ab5d1ed48fe",
    "mindspore-lab/mindformers": "22244f4b395792c1e362c82bd21c7421ab8b92f4",
    "mlc-ai/mlc-llm": "79d603f085f50500e9509fa01785ffa7ecfaaa93",
    "wujing215/OpenPangu7B-on-NVIDIA": "03f0072ebf7c483c62cccf47391c25ba13191b46",
}
_KEPT = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "tie_word_embeddings"),
    *("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "num_nextn_predict_layers"),
    *("num_experts", "num_local_experts", "n_routed_experts", "n_shared_experts", "num_experts_per_tok"),
    *("moe_intermediate_size", "shared_expert_intermediate_size", "first_k_dense_replace"),
    *("use_qk_norm", "attention_bias", "bias"),
)
_CLASSES = {
    "PanguEmbedded": "PanguEmbeddedForCausalLM",
    "baichuan": "BaichuanForCausalLM",
    "chatglm": "ChatGLMModel",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "internlm": "InternLMForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
    "internlm3": "InternLM3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "telechat": "TelechatForCausalLM",
    "telechat3": "TeleChat3ForCausalLM",
    "telechat3_moe": "TeleChat3MoeForCausalLM",
}
# Settings that other types do not read.
_ONLY = {
    "use_qk_norm": ("glm4_moe",),
    "attention_bias": ("glm4", "glm4_moe"),
    "bias": ("PanguEmbedded", "internlm", "internlm3"),
    "num_key_value_heads": tuple(kind for kind in _CLASSES if not kind.startswith("deepseek")),
}
_EXPERTS = {"mixtral": "num_local_experts", "qwen2_moe": "num_experts", "qwen3_moe": "num_experts"}
_RENAMED = {
    # ``model_config`` of MindFormers' legacy classes, and ``moe_config``
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "shared_expert_num": "n_shared_experts",
    "num_experts_chosen": "num_experts_per_tok",
    "mtp_depth": "num_nextn_predict_layers",
    # ``ChatGLM2Config``
    "padded_vocab_size": "vocab_size",
    "ffn_hidden_size": "intermediate_size",
    "multi_query_group_num": "num_key_value_heads",
    # ``ModelArgs`` of DeepSeek's inference code
    "dim": "hidden_size",
    "inter_dim": "intermediate_size",
    "moe_inter_dim": "moe_intermediate_size",
    "n_layers": "num_hidden_layers",
    "n_dense_layers": "first_k_dense_replace",
    "n_heads": "num_attention_heads",
    "n_activated_experts": "num_experts_per_tok",
    # ``Config`` of LitGPT
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_query_groups": "num_key_value_heads",
    "n_expert_per_token": "num_experts_per_tok",
    # arguments of Megatron-LM and MindSpeed-LLM
    "num-layers": "num_hidden_layers",
    "ffn-hidden-size": "intermediate_size",
    "num-query-groups": "num_key_value_heads",
    "kv-channels": "head_dim",
    "padded-vocab-size": "vocab_size",
    "moe-ffn-hidden-size": "moe_intermediate_size",
    "moe-router-topk": "num_experts_per_tok",
    "moe-shared-expert-intermediate-size": "shared_width",
}
_EXPERT_COUNTS = ("expert_num", "n_expert", "num-experts")

_MCORE, _YAML = "examples/mcore/", "mindformers-telechat/research/"
_PRESETS = "python/mlc_llm/model/model_preset.py"
ROWS: tuple[tuple[str, str, str, str, str], ...] = (  # model, its type, repository, file, name inside the file
    *(
        (name, kind, "mlc-ai/mlc-llm", _PRESETS, preset)
        for name, kind, preset in (
            ("Llama-2-7B", "llama", "llama2_7b"),
            ("Llama-2-13B", "llama", "llama2_13b"),
            ("Llama-2-70B", "llama", "llama2_70b"),
            ("Llama-3.1-70B", "llama", "llama3_1_70b"),
            ("Llama-3.2-1B", "llama", "llama3_2_1b"),
            ("Mistral-7B-v0.1", "mistral", "mistral_7b"),
            ("Mixtral-8x7B-v0.1", "mixtral", "Mixtral-8x7B-v0.1"),
            ("Qwen1.5-MoE-A2.7B", "qwen2_moe", "qwen2moe"),
            ("Qwen2-0.5B", "qwen2", "qwen2_0_5b"),
            ("Qwen2-1.5B", "qwen2", "qwen2_1_5b"),
            ("Qwen2-7B", "qwen2", "qwen2_7b"),
            ("Qwen3-0.6B", "qwen3", "qwen3_0.6b"),
            ("Qwen3-1.7B", "qwen3", "qwen3_1.7b"),
            ("Baichuan2-7B", "baichuan", "baichuan"),
            ("InternLM-7B", "internlm", "internlm"),
            ("InternLM2-7B", "internlm2", "internlm2"),
            ("InternLM2.5-7B", "internlm2", "internlm2_5_7b"),
            ("ChatGLM3-6B", "chatglm", "chatglm"),
            ("DeepSeek-V2-Lite", "deepseek_v2", "deepseek_v2_lite"),
        )
    ),
    *(
        (name, kind, "citsjtu2020/LLM-Prof", "sglang/Model_Config.md", name)
        for name, kind in (
            ("Llama-3.1-8B", "llama"),
            ("Llama-3.2-3B", "llama"),
            ("Qwen2.5-3B", "qwen2"),
            ("Qwen2.5-7B", "qwen2"),
            ("Qwen2.5-14B", "qwen2"),
            ("Qwen2.5-32B", "qwen2"),
            ("Qwen3-4B", "qwen3"),
            ("Qwen3-8B", "qwen3"),
            ("Qwen3-14B", "qwen3"),
            ("Qwen3-32B", "qwen3"),
            ("Qwen3-30B-A3B", "qwen3_moe"),
        )
    ),
    *(
        (name, kind, "Lightning-AI/litgpt", "litgpt/config.py", inside)
        for name, kind, inside in (
            ("Llama-3-70B", "llama", "Llama-3-70B{}"),
            ("Llama-3.1-405B", "llama", "Llama-3.1-405B{}"),
            ("Llama-3.3-70B", "llama", "Llama-3.3-70B-Instruct"),
            ("Mixtral-8x22B-v0.1", "mixtral", "Mixtral-8x22B-{}v0.1"),
            ("QwQ-32B", "qwen2", "QwQ-32B"),
        )
    ),
    *(
        (name, kind, "THUDM/slime", f"scripts/models/{script}.sh", "")
        for name, kind, script in (
            ("Qwen2.5-0.5B", "qwen2", "qwen2.5-0.5B"),
            ("Qwen2.5-1.5B", "qwen2", "qwen2.5-1.5B"),
            ("Qwen3-235B-A22B", "qwen3_moe", "qwen3-235B-A22B"),
            ("GLM-4-9B-0414", "glm4", "glm4-9B"),
            ("GLM-4.5", "glm4_moe", "glm4.5-355B-A32B"),
            ("GLM-4.5-Air", "glm4_moe", "glm4.5-106B-A12B"),
        )
    ),
    *(
        (name, kind, "Ascend/MindSpeed-LLM", f"{_MCORE}{script}.sh", "")
        for name, kind, script in (
            ("Qwen2-57B-A14B", "qwen2_moe", "qwen2_moe/pretrain_qwen2_57b_a14b_4k_ptd"),
            ("Qwen2-72B", "qwen2", "qwen2/pretrain_qwen2_72b_4k_ptd"),
            ("Qwen2.5-72B", "qwen2", "qwen25/pretrain_qwen25_72b_32k_ptd"),
            ("Qwen1.5-32B", "qwen2", "qwen15/pretrain_qwen15_32b_ptd"),
            ("DeepSeek-V2.5", "deepseek_v2", "deepseek25/pretrain_deepseek25_236b_8k_ptd"),
            ("GLM-4-9B", "chatglm", "glm4/pretrain_glm4_9b_8k_ptd"),
            ("InternLM2-20B", "internlm2", "internlm2/pretrain_internlm2_20b_4k_ptd"),
            ("InternLM2.5-1.8B", "internlm2", "internlm25/pretrain_internlm25_1point8b_32k_ptd"),
            ("InternLM2.5-20B", "internlm2", "internlm25/pretrain_internlm25_20b_32k_16p_ptd"),
            ("InternLM3-8B", "internlm3", "internlm3/pretrain_internlm3_8b_8k_ptd"),
        )
    ),
    *(
        (name, kind, "Tele-AI/TeleChat2", f"{_YAML}{config}.yaml", "")
        for name, kind, config in (
            ("Qwen1.5-72B", "qwen2", "qwen1_5/qwen1_5_72b/finetune_qwen1_5_72b"),
            ("Qwen1.5-14B", "qwen2", "qwen1_5/qwen1_5_14b/finetune_qwen1_5_14b"),
            ("Qwen1.5-7B", "qwen2", "qwen1_5/qwen1_5_7b/finetune_qwen1_5_7b"),
            ("TeleChat-7B", "telechat", "telechat/finetune_telechat_7b"),
            ("TeleChat-12B", "telechat", "telechat/finetune_telechat_12b"),
            ("TeleChat-52B", "telechat", "telechat/finetune_telechat_52b"),
        )
    ),
    *(
        (name, kind, "mindspore-lab/mindformers", f"research/{config}.yaml", "")
        for name, kind, config in (
            ("DeepSeek-V3", "deepseek_v3", "deepseek3/deepseek3_671b/pretrain_deepseek3_671b"),
            ("Llama-3-8B", "llama", "llama3/llama3_8b/finetune_llama3_8b"),
            ("Yi-6B", "llama", "yi/yi_6b/finetune_yi_6b"),
            ("Yi-34B", "llama", "yi/yi_34b/finetune_yi_34b"),
        )
    ),
    *(
        (name, kind, "mindspore-ai/mindformers", f"{config}.yaml", "")
        for name, kind, config in (
            ("TeleChat2-7B", "telechat", "research/telechat2/telechat2-7b/finetune_telechat_7b"),
            ("TeleChat2-35B", "telechat", "research/telechat2/telechat2-35b/finetune_telechat_35b"),
            ("TeleChat3-36B", "telechat3", "configs/telechat3/pretrain_telechat3_36b"),
            ("TeleChat3-105B-A4.7B", "telechat3_moe", "configs/telechat3_moe/pretrain_telechat3_105b_a4b_4k"),
        )
    ),
    (
        "Baichuan2-13B",
        "baichuan",
        "inclusionAI/Ling",
        "mindie_config/atb_models/build/lib/atb_llm/models/baichuan/v2_13b/config_baichuan.py",
        "BaichuanConfig",
    ),
    ("TeleChat2-115B", "telechat", "Tele-AI/TeleChat2", "model/115B/config.json", ""),
    ("DeepSeek-V2", "deepseek_v2", "deepseek-ai/DeepSeek-V3", "inference/configs/config_236B.json", ""),
    (
        "openPangu-Embedded-7B",
        "PanguEmbedded",
        "wujing215/OpenPangu7B-on-NVIDIA",
        "configuration_openpangu_dense.py",
        "PanguEmbeddedConfig",
    ),
)


def made(sources: Path) -> dict[str, dict[str, Any]]:
    """The models, by name, in the order of :data:`ROWS`."""
    models = {}
    for name, kind, repository, file, inside in ROWS:
        commit = COMMITS[repository]
        folder = sources / repository.replace("/", "+")
        folder = folder / "repo" if (folder / "repo").is_dir() else folder
        shown = ["git", "-C", str(folder), "show", f"{commit}:{file}"]
        text = subprocess.run(shown, capture_output=True, check=True, text=True).stdout
        config = _config(_settings(file, text, inside), kind)
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
            else _RENAMED.get(key, key.replace("-", "_"))
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
    return {"model_type": kind, "architectures": [_CLASSES[kind]], **{key: named[key] for key in _KEPT if key in named}}


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
