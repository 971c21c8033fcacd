"""Make the cells and operators of one layer of every model that MindFormers trains, for ``facts/data/trees.json``.

Part of :mod:`tests.oracle.make_frameworks`, to be run where MindSpore is installed. The wheels of all releases are
downloaded and unpacked, and each model of each is built on the CPU, with small sizes, in a separate process; its layers
are then taken from the real networks. ``hyper_parallel``, which the releases from 2.0 on import and no package index
has in the required version, is replaced by objects that do nothing: it does not affect the parts of a layer.

Two models are not in the wheels but in the folder ``research`` of the repository: TeleChat (2 and 3) and the legacy
DeepSeek-V3. :func:`_research_layer` assembles their layers from the names in their source; the parts themselves are
cells of the wheels and are built.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_ROOT = Path(__file__).parents[2]
_CONFIGS = "1.9"  # the release that has a config for every model, for those without one
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
# Model, config, and the values set in it. A model that is not legacy is built with every activation.
_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "LlamaForCausalLM": ("", _LLAMA),
    "ChatGLM2ForConditionalGeneration": ("glm4/finetune_glm4_9b.yaml", _GLM),
    "qwen3": ("qwen3/pretrain_qwen3_32b_4k.yaml", _SMALL | _GROUPED),
    "qwen3_moe": ("qwen3_moe/pretrain_qwen3_30b_a3b_4k.yaml", _SMALL | _GROUPED | _EXPERTS | {"num_experts": 16}),
    "deepseek_v3": ("deepseek3/pretrain_deepseek3_12b_16p_pp16.yaml", _SMALL | _LATENT | _EXPERTS | {"n_routed_experts": 16, "num_nextn_predict_layers": 1}),
    "telechat3": ("telechat3/pretrain_telechat3_36b.yaml", _SMALL | _GROUPED),
    "telechat3_moe": ("telechat3_moe/pretrain_telechat3_105b_a4b_4k.yaml", _SMALL | _LATENT | _EXPERTS | {"n_routed_experts": 16}),
}  # fmt: skip
# Settings of those configs that a release does not know yet.
_TOO_NEW = {"deepseek_v3": {"1.6": ("moe_aux_loss_coeff",)}}
# The release since which a model can be trained.
_SINCE = {"qwen3": "1.7", "qwen3_moe": "1.7", "telechat3": "1.9", "telechat3_moe": "1.9"}
_RESEARCH: dict[str, dict[str, dict[str, Any]]] = {
    "TelechatForCausalLM": {"": {}, "concat": {}, "no-flash": {}},
    "DeepseekV3ForCausalLM": {"": {}, "no-flash": {}},
}
_VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "LlamaForCausalLM": {"": {}, "qkv_concat": {"qkv_concat": True}, "no-flash": {"use_flash_attention": False}},
    "ChatGLM2ForConditionalGeneration": {"": {}},
    **_RESEARCH,
}
_ACTIVATIONS = {name: {"hidden_act": name} for name in ("silu", "swiglu", "fusedswiglu")}
_TINY = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "seq_length": 32,
    "max_position_embeddings": 32,
}
_DYNAMIC: dict[str, tuple[str, str, dict[str, Any]]] = {
    "qwen3": ("qwen3.modeling_qwen3_train_pynative", "qwen3.configuration_qwen3:Qwen3Config", _TINY | _GROUPED),
    "deepseek_v3": (
        "deepseek3.modeling_deepseek_v3_pynative",
        "deepseek3.configuration_deepseek_v3:DeepseekV3Config",
        _TINY
        | _LATENT
        | {"num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_routed_experts": 4, "moe_grouped_gemm": True}
        | {"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "num_nextn_predict_layers": 1},
    ),
}

# A cell: its operators, and its child cells by name.
Shape = tuple[list[str], dict[str, Any]]


class _Nothing:
    """A replacement of any class or function."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __call__(self, *values: Any, **named: object) -> Any:  # noqa: ANN401 - as a decorator it gives back what it gets
        return values[0] if len(values) == 1 and not named and callable(values[0]) else self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()


class _StandIn(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (_Nothing,), {})
        setattr(self, name, made)
        return made


class _Finder(MetaPathFinder, Loader):
    """An import hook for ``hyper_parallel`` and all its modules."""

    def find_spec(self, name: str, _path: object, _target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".", maxsplit=1)[0] == "hyper_parallel" else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = _StandIn(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def build(model: str, values: dict[str, Any], folder: Path, release: str) -> Any:  # noqa: ANN401 - MindSpore has no types
    """Build the network of a model of the static graph.

    Args:
        model: Its name.
        values: Values to set in its config.
        folder: The folder of the unpacked releases.
        release: The current release.
    """
    if model == "LlamaForCausalLM":
        llama = import_module("mindformers.models.llama")
        return llama.LlamaForCausalLM(llama.LlamaConfig(**{"use_flash_attention": True} | values))
    register = import_module("mindformers.tools.register.config")
    paths = [folder / name / "configs" / _MODELS[model][0] for name in (release, _CONFIGS)]
    config = register.MindFormerConfig(str(next(path for path in paths if path.exists())))
    config.use_parallel = False
    config.run_mode = "train"
    config.context.device_target = "CPU"
    for key in ("ascend_config", "jit_config", "max_device_memory", "memory_optimize_level"):
        config.context.pop(key, None)
    config.parallel_config = register.MindFormerConfig(
        data_parallel=1, model_parallel=1, pipeline_stage=1, micro_batch_num=1
    )
    config.recompute_config.recompute = False
    for key in _TOO_NEW.get(model, {}).get(release, ()):
        config.model.model_config.pop(key, None)
    config.model.model_config.update(values)
    import_module("mindformers.core.context").build_context(config)
    import_module("mindformers.core.parallel_config").build_parallel_config(config)
    shared = {"parallel_config": config.parallel_config, "moe_config": config.moe_config}
    config.model.model_config.update(shared)
    return import_module("mindformers.models.build_model").build_network(config.model, default_args=shared)


def static_layers(network: Any) -> dict[str, list[Shape]]:  # noqa: ANN401
    """Return the network's layers, and separately the prediction layers."""
    found: dict[str, list[Shape]] = {}
    for name, cell in network.cells_and_names():
        if name.endswith("layers") and type(cell).__name__ == "CellList":
            found.setdefault("mtp" if "mtp" in name else "", [shape(layer) for layer in cell])
    return found


def shape(cell: Any) -> Shape:  # noqa: ANN401
    """Return a cell's operators by name, then its child cells in order."""
    primitive = import_module("mindspore.ops").Primitive
    operators = []
    for name in dir(cell):
        try:
            value = getattr(cell, name)
        except Exception:  # noqa: BLE001, S112 - some attributes are there only later
            continue
        if isinstance(value, primitive):
            operators.append(name)
    return operators, {name: shape(child) for name, child in cell._cells.items() if child is not None}


def _research_layer(model: str, variant: str) -> list[Shape]:
    """Return the layers of a model that is not in the wheels.

    Names and order are those of the constructors in ``research/telechat2/telechat_transformer.py`` and
    ``telechat_layer.py`` (``research/telechat3`` has the same), and in ``research/deepseek3/deepseek2_model.py``.
    """
    layers = import_module("mindformers.modules.layers")
    llama = import_module("mindformers.models.llama.llama_layer")
    flash = variant != "no-flash"
    plain, biased = (shape(layers.Linear(8, 8, has_bias=bias)) for bias in (False, True))
    norm, activation = shape(llama.LlamaRMSNorm(8)), shape(llama.LlamaSiLU())
    core = llama_attention()
    if model == "TelechatForCausalLM":
        dropout = shape(layers.Dropout(0.9))
        inner, outer = ((ops, cells | {"dropout": dropout}) for ops, cells in (plain, biased))
        gated = (inner[0], {"activation": activation, "dropout": dropout})
        attention: Shape = (
            sorted(
                {"add", "batch_matmul", "batch_matmul_q_k", "cast", "cast_attn", "merger_head_transpose", "mul"}
                | {"reshape", "shape", "softmax", "split_kv", "tile_kv", "transpose"}
            ),
            {"wq": inner, "wk_v": inner, "wo": outer, "apply_rotary_emb": core["apply_rotary_emb"]}
            | {"attention_dropout": dropout}
            | ({"flash_attention": core["flash_attention"]} if flash else {}),
        )
        feed: Shape = (["cast", "mul"], {"w1": gated, "w3": inner, "w2": outer})
        if variant == "concat":
            feed = (["cast", "mul", "split"], {"w_gate_hidden": inner, "activate": activation, "w2": outer})
        return [_legacy_layer(norm, attention, feed)]
    rotary: Shape = (sorted({*core["apply_rotary_emb"][0], "transpose"} - {"mul_with_batch_freqs"}), {})
    attention = (
        sorted(
            {"add", "batch_matmul", "batch_matmul_q_k", "cast", "cast_attn", "dim_slice_3d", "dim_slice_4d", "mul"}
            | {"dp_only_transpose", "merger_head_transpose", "mul_zeros", "pe_concat", "reshape", "shape", "slice_qkv"}
            | {"softmax", "sum_test", "tile_kv", "transpose"}
        ),
        {"q2l_proj": plain, "lq_norm": norm, "l2q_nope_proj": plain, "l2q_pe_proj": plain, "kv2l_k_pe": plain}
        | {"kv2l_latent_kv": plain, "lkv_norm": norm, "lkv2kv_k_nope": plain, "lkv2kv_v": plain, "wo": plain}
        | {"apply_rotary_emb": rotary}
        | ({"flash_attention": core["flash_attention"]} if flash else {}),
    )
    dense = shape(llama.LlamaFeedForward(8, hidden_dim=32))
    experts = import_module("mindformers.modules.transformer.moe").MoEConfig(
        expert_num=4,
        num_experts_chosen=2,
        shared_expert_num=1,
        routing_policy="TopkRouterV2",
        moe_intermediate_size=32,
    )
    parallel = import_module("mindformers.modules.transformer").TransformerOpParallelConfig()
    mixed = llama.LlamaFeedForwardWithMoE(
        hidden_size=8, intermediate_size=32, moe_config=experts, parallel_config=parallel
    )
    return [_legacy_layer(norm, attention, feed) for feed in (dense, shape(mixed))]


def _legacy_layer(norm: Shape, attention: Shape, feed: Shape) -> Shape:
    cells = {"ffn_norm": norm, "attention_norm": norm, "attention": attention, "feed_forward": feed}
    return ["add", "cast", "reshape", "shape"], cells


def llama_attention() -> dict[str, Any]:
    """Return the cells inside the attention of a Llama layer."""
    cells: dict[str, Any] = static_layers(build("LlamaForCausalLM", _LLAMA, Path(), ""))[""][0][1]["attention"][1]
    return cells


def dynamic_network(model: str, values: dict[str, Any]) -> Any:  # noqa: ANN401
    """Build the network of a model of the dynamic graph."""
    module, config, _ = _DYNAMIC[model]
    where, _, name = config.partition(":")
    names = vars(import_module(f"mindformers.models.{module}"))
    network = next(value for key, value in names.items() if key.startswith("PyNative"))
    return network(getattr(import_module(f"mindformers.models.{where}"), name)(**values))


def dynamic_layers(model: str) -> list[Shape]:
    """Return the layers of a model of the dynamic graph, prediction layers last, with the parts that the framework lists."""
    import_module("mindspore").set_context(mode=1, device_target="CPU")
    network = dynamic_network(model, _DYNAMIC[model][2])
    collect = import_module("mindformers.pynative.distributed.activation_checkpoint")._get_single_layer_whitelist
    blocks = {name: cell for name, cell in network.cells_and_names() if name.endswith("layers")}
    found = []
    for name in sorted(blocks, key=lambda name: "mtp" in name):
        for layer in blocks[name]:
            paths: list[str] = []
            collect(layer, paths)
            found.append(_from_paths(paths, layer))
    return found


def _from_paths(paths: Sequence[str], layer: Any) -> Shape:  # noqa: ANN401
    """Return a layer from the paths of its parts; a part that has parts, or is a cell, becomes a cell."""
    cells = {name for name, _ in layer.cells_and_names()}
    top: Shape = ([], {})
    known = {"": top}
    for path in paths:
        above, _, name = path.rpartition(".")
        if path in cells:
            known[path] = ([], {})
            known[above][1][name] = known[path]
        else:
            known[above][0].append(name)
    return top


def _tasks(release: str) -> Iterator[tuple[str, str]]:
    """Yield the models to build of a release: kind and model."""
    for model in (*_MODELS, *_RESEARCH):
        if release >= _SINCE.get(model, ""):
            yield "research" if model in _RESEARCH else "static", model
    if release.startswith("2"):
        for model in _DYNAMIC:
            yield "dynamic", model


class _Parts:
    """Cells by their text; a repeated cell is referenced by its number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def number(self, cell: Shape) -> int:
        operators, cells = cell
        text = " ".join((*operators, *(f"{name}={self.number(child)}" for name, child in cells.items())))
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text)


Known = dict[str, dict[str, dict[str, list[int]]]]


def trees(wheels: Mapping[str, Path]) -> tuple[list[str], dict[str, Known]]:
    """Return the cells of every variant of every model of every release, each built in a child process.

    Returns:
        The cells (operators, then child cells as name=number), and by model, variant and release the numbers of its
        kinds of
        layers, the one without experts first.
    """
    parts = _Parts()
    known: dict[str, Known] = {"static": {}, "dynamic": {}}
    with tempfile.TemporaryDirectory() as folder:
        for release, wheel in wheels.items():
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(Path(folder, release))
        for release in wheels:
            for task in _tasks(release):
                kind, model = task
                models: Known = known["dynamic" if kind == "dynamic" else "static"]
                for variant, kinds in _read_layers(Path(folder), release, task).items():
                    numbers = list(dict.fromkeys(map(parts.number, kinds)))
                    models.setdefault(model, {}).setdefault(variant, {})[release] = numbers
    return parts.texts, known


def _read_layers(folder: Path, release: str, task: tuple[str, str]) -> dict[str, list[Shape]]:
    """Return the layers of every variant of a model."""
    done = subprocess.run(
        [sys.executable, __file__, *task, str(folder), release],
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,  # a busy machine is slow
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder / release)},
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if re.match(r"\w*(Error|Exception)\b", line)]
        print(f"{release} {' '.join(task)}: {errors[-1:]}")  # noqa: T201
        return {}
    found: dict[str, list[Shape]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _child(kind: str, model: str, folder: str, release: str) -> dict[str, list[Shape]]:
    """Return the layers of every variant of a model of the current release."""
    sys.meta_path.insert(0, _Finder())
    if kind == "dynamic":
        return {"": dynamic_layers(model)}
    variants = _VARIANTS.get(model, _ACTIVATIONS)
    if kind == "research":
        return {variant: _research_layer(model, variant) for variant in variants}
    found: dict[str, list[Shape]] = {}
    for variant, values in variants.items():
        layers = static_layers(build(model, _MODELS[model][1] | values, Path(folder), release))
        found |= {f"{variant} {name}".rstrip(): kinds for name, kinds in layers.items()}
    return found


if __name__ == "__main__":
    print(json.dumps(_child(*sys.argv[1:5])))  # noqa: T201 - read by the parent process
