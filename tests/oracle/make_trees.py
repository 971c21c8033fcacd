"""Writes ``ms_tune/layers/tree_data.py``: the cells and operators of one layer of every model that MindFormers trains.

Run it where MindSpore and MindFormers are installed: ``python tests/oracle/make_trees.py``. Each model is built from a
config that comes with MindFormers, with small sizes, on the CPU; the layers are then taken from the real network. Every
build runs in a process of its own, because MindFormers keeps global state.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Any

_OUTPUT = Path(__file__).parents[2] / "ms_tune" / "layers" / "tree_data.py"
_SMALL: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "seq_length": 4096,
    "max_position_embeddings": 4096,
    "offset": 0,
    "pp_interleave_num": 1,
}
_GROUPED = {"num_key_value_heads": 2, "head_dim": 16}
_LATENT = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "qk_nope_head_dim": 16}
_EXPERTS = {"num_experts_per_tok": 8, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 32}
_GLM = {
    "num_layers": 1,
    "padded_vocab_size": 128,
    "hidden_size": 64,
    "ffn_hidden_size": 64,
    "kv_channels": 16,
    "num_attention_heads": 4,
    "multi_query_group_num": 2,
    "seq_length": 32,
    "offset": 0,
}
_LLAMA = {"num_layers": 1, "hidden_size": 64, "num_heads": 4, "vocab_size": 128, "seq_length": 32, "batch_size": 1}
# Model, then config, then the values set in it. A model that is not a legacy one is built with every activation.
_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "LlamaForCausalLM": ("", _LLAMA),
    "ChatGLM2ForConditionalGeneration": ("glm4/finetune_glm4_9b.yaml", _GLM),
    "qwen3": ("qwen3/pretrain_qwen3_32b_4k.yaml", _SMALL | _GROUPED),
    "qwen3_moe": ("qwen3_moe/pretrain_qwen3_30b_a3b_4k.yaml", _SMALL | _GROUPED | _EXPERTS | {"num_experts": 16}),
    "deepseek_v3": ("deepseek3/pretrain_deepseek3_12b_16p_pp16.yaml", _SMALL | _LATENT | _EXPERTS | {"n_routed_experts": 16}),
    "telechat3": ("telechat3/pretrain_telechat3_36b.yaml", _SMALL | _GROUPED),
    "telechat3_moe": ("telechat3_moe/pretrain_telechat3_105b_a4b_4k.yaml", _SMALL | _LATENT | _EXPERTS | {"n_routed_experts": 16}),
}  # fmt: skip
_VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "LlamaForCausalLM": {"": {}, "qkv_concat": {"qkv_concat": True}, "no-flash": {"use_flash_attention": False}},
    "ChatGLM2ForConditionalGeneration": {"": {}},
}
_ACTIVATIONS = {name: {"hidden_act": name} for name in ("silu", "swiglu", "fusedswiglu")}


def build(model: str, values: dict[str, Any]) -> Any:  # noqa: ANN401 - MindSpore has no types
    """The network of a model."""
    if model == "LlamaForCausalLM":
        llama = import_module("mindformers.models.llama")
        return llama.LlamaForCausalLM(llama.LlamaConfig(**{"use_flash_attention": True} | values))
    register = import_module("mindformers.tools.register.config")
    folder = Path(str(import_module("mindformers").__file__)).parents[1] / "configs"
    config = register.MindFormerConfig(str(folder / _MODELS[model][0]))
    config.use_parallel = False
    config.run_mode = "train"
    config.context.device_target = "CPU"
    for key in ("ascend_config", "jit_config", "max_device_memory", "memory_optimize_level"):
        config.context.pop(key, None)
    config.parallel_config = register.MindFormerConfig(
        data_parallel=1, model_parallel=1, pipeline_stage=1, micro_batch_num=1
    )
    config.recompute_config.recompute = False
    config.model.model_config.update(values)
    import_module("mindformers.core.context").build_context(config)
    import_module("mindformers.core.parallel_config").build_parallel_config(config)
    shared = {"parallel_config": config.parallel_config, "moe_config": config.moe_config}
    config.model.model_config.update(shared)
    return import_module("mindformers.models.build_model").build_network(config.model, default_args=shared)


def layers(network: Any) -> list[str]:  # noqa: ANN401
    """The trees of the network's layers; those of prediction layers are left out."""
    for name, cell in network.cells_and_names():
        if name.endswith("layers") and type(cell).__name__ == "CellList" and "mtp" not in name:
            return [tree(layer) for layer in cell]
    raise AssertionError(network)


def tree(cell: Any) -> str:  # noqa: ANN401
    """A cell's operators by name, then its child cells in their order."""
    primitive = import_module("mindspore.ops").Primitive
    operators = []
    for name in dir(cell):
        try:
            value = getattr(cell, name)
        except Exception:  # noqa: BLE001, S112 - some attributes are there only later
            continue
        if isinstance(value, primitive):
            operators.append(name)
    children = [f"[{name}: {tree(child)}]" for name, child in cell._cells.items() if child is not None]
    return " ".join((*operators, *children))


def task(model: str, variant: str) -> tuple[str, dict[str, Any]]:
    """What to build: the model and the values set in its config."""
    return model, _MODELS[model][1] | _VARIANTS.get(model, _ACTIVATIONS)[variant]


def main() -> None:
    """Build every variant of every model, each in a child process, and write the file."""
    trees: list[str] = []
    models: dict[str, dict[str, list[int]]] = {}
    for model in _MODELS:
        for variant in _VARIANTS.get(model, _ACTIVATIONS):
            done = subprocess.run(
                [sys.executable, __file__, json.dumps(task(model, variant))],
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            if done.returncode:
                print(f"{model} {variant}: {done.stderr.strip().splitlines()[-1]}")  # noqa: T201
                continue
            kinds = list(dict.fromkeys(json.loads(done.stdout.splitlines()[-1])))
            trees += [kind for kind in kinds if kind not in trees]
            models.setdefault(model, {})[variant] = [trees.index(kind) for kind in kinds]
    _OUTPUT.write_text(_text(trees, models))


def _text(trees: list[str], models: dict[str, dict[str, list[int]]]) -> str:
    version = import_module("importlib.metadata").version("mindformers")
    lines = [
        f'"""The cells and operators of one layer of every model that MindFormers {version} trains.',
        "",
        "Made from the real networks by ``tests/oracle/make_trees.py``; the notation is that of",
        ":func:`ms_tune.layers.trees.parse_tree`.",
        '"""',
        "",
        "# Trees: operators, then child cells in brackets.",
        "TREES = (",
    ]
    for number, one in enumerate(trees):
        parts = textwrap.wrap(one, 105, break_long_words=False, break_on_hyphens=False)
        quoted = [json.dumps(part + " " * (part is not parts[-1])) for part in parts]
        lines += [f"    # {number}", "    (", *(f"        {part}" for part in quoted), "    ),"]
    lines += [")", "", "# Model and variant -> its kinds of layers, the one without experts first."]
    lines.append("MODELS: dict[str, dict[str, tuple[int, ...]]] = {")
    for model, variants in models.items():
        inner = ", ".join(f"{json.dumps(name)}: {tuple(kinds)!r}" for name, kinds in variants.items())
        lines.append(f"    {json.dumps(model)}: {{{inner}}},")
    return "\n".join([*lines, "}"]) + "\n"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        name, given = json.loads(sys.argv[1])
        print(json.dumps(layers(build(name, given))))  # noqa: T201 - read by the parent process
    else:
        main()
