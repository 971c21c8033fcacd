"""Run the code of one release of MindSpeed-LLM, MindSpeed and Megatron-LM on lists of arguments, and report its layers.

Started with the folder of the release, it reads lists of arguments, a JSON list on each line, and answers each with a
line of JSON. Every list has a separate process, forked from one with all imports: MindSpeed patches Megatron-LM by the
arguments. This module decides nothing: the frameworks parse and validate arguments and apply patches; every stage and
chunk builds its block of layers, and a step of it runs with layers without weights.
"""

# ruff: noqa: ANN401 - what stands in for everything has no type

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.oracle import megatron_stand_in
from tests.oracle.megatron_stand_in import Anything

_ADAPTOR = "mindspeed_llm.tasks.megatron_adaptor_v2"
_FIRST = (
    '["--num-layers", "2", "--hidden-size", "64", "--num-attention-heads", "4", "--micro-batch-size", "1", "--seq-length", "64",'
    ' "--max-position-embeddings", "64", "--recompute-norm", "--recompute-activation-function", "--swap-attention"]'
)
_SECONDS = 1.5  # of its own
PARTS = ("MindSpeed-LLM", "MindSpeed", "Megatron-LM")


def main() -> None:
    """Answer every line."""
    folder = Path(sys.argv[1])
    sys.path[:0] = [str(folder / part) for part in PARTS]
    megatron_stand_in.install()
    os.environ.update(RANK="0", CUDA_DEVICE_MAX_CONNECTIONS="1")
    answers = os.fdopen(os.dup(1), "w")
    sys.stdout = io.StringIO()
    options = sys.argv[2:]
    if "parser" in sys.argv:
        _watch_parsers()
    _ONLY_SETTINGS.extend(one for one in ("settings", "config") if one in sys.argv)
    sys.argv = ["pretrain_gpt.py"]
    if "cold" not in options:
        _warm()
    if "quick" in options:  # the patches of plain arguments have to do
        sys.argv = ["pretrain_gpt.py", *json.loads(_FIRST)[:12]]
        import_module(_ADAPTOR)
    for line in sys.stdin:
        answers.write(_run_forked(json.loads(line)) + "\n")
        answers.flush()


def _warm() -> None:
    """Import once everything that all lists need; patches are applied in the copies."""
    names = json.loads(_run_forked(json.loads(_FIRST), names=True))["modules"]
    held = sys.modules[_ADAPTOR] = ModuleType(_ADAPTOR)
    package = import_module("mindspeed_llm")
    for name in names:
        if name != _ADAPTOR:
            with contextlib.suppress(Exception):
                import_module(name)
    patches: Any = import_module("mindspeed.patch_utils")
    patches.sys = SimpleNamespace(modules=_Modules())
    if sys.modules[_ADAPTOR] is held:
        del sys.modules[_ADAPTOR]
        del package.megatron_adaptor
        vars(import_module("mindspeed_llm.tasks")).pop("megatron_adaptor_v2", None)


# If filled, the answer has the final values of all settings; with ``config`` the layers' config is made of them, too.
_ONLY_SETTINGS: list[str] = []
_NAMES: set[str] = set()  # arguments of the largest parser that ran


def _watch_parsers() -> None:
    """Record which arguments a parser knows when it runs."""
    parse = ArgumentParser.parse_known_args

    def watched(self: ArgumentParser, *args: Any, **named: Any) -> Any:
        names = {name for name in self._option_string_actions if name.startswith("--")}
        if len(names) > len(_NAMES):  # MindSpeed runs its own parser before
            _NAMES.clear()
            _NAMES.update(names)
        return parse(self, *args, **named)

    ArgumentParser.parse_known_args = watched  # type: ignore[method-assign]  # for this process


class _Modules(dict[str, ModuleType]):
    """A replacement of ``sys.modules`` for MindSpeed, which searches all modules for each patch: modules with such a name suffice."""

    def __getitem__(self, name: str) -> ModuleType:
        return sys.modules[name]

    def __setitem__(self, name: str, module: ModuleType) -> None:
        sys.modules[name] = module

    def copy(self) -> dict[str, ModuleType]:
        """Return the modules that may contain the target of the current patch."""
        patch = sys._getframe(1).f_locals["self"]
        return {name: one for name, one in sys.modules.items() if patch.orig_func_name in vars(one)}


def _run_forked(arguments: list[str], *, names: bool = False) -> str:
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        signal.signal(signal.SIGVTALRM, _endless)
        signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
        found = _answer(arguments)
        if _NAMES:
            found["names"] = sorted(_NAMES)
        if names:
            found["modules"] = [name for name in sys.modules if name.startswith(("megatron", "mindspeed"))]
        with os.fdopen(write, "w") as out:
            out.write(json.dumps(found))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        found_text = answer.read()
    os.waitpid(pid, 0)
    return found_text


class EndlessError(BaseException):
    """A timeout of the code."""


def _endless(*_: object) -> None:
    raise EndlessError


def _answer(arguments: list[str]) -> dict[str, Any]:
    sys.argv = ["pretrain_gpt.py", *arguments]
    os.environ["WORLD_SIZE"] = str(world_size(arguments))
    step = "import"
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as expected:
            import_module(_ADAPTOR)
            step = "arguments"
            args = _arguments()
            if "config" in _ONLY_SETTINGS:
                import_module("megatron.training.arguments").core_transformer_config_from_args(args)
            if _ONLY_SETTINGS:
                return {"settings": {name: str(value) for name, value in vars(args).items()}}
            step = "layers"
            return {"layers": _layers(args), **_facts(args)}
    except EndlessError:
        return {"stopped": step, "exception": "endless-loop", "text": ""}
    except SystemExit:
        return {"stopped": step, "exception": "SystemExit", "text": expected.getvalue()[-300:]}
    except Exception as error:  # noqa: BLE001 - whatever the framework raises is the answer
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno} {last.name}"
        return {"stopped": step, "exception": type(error).__name__, "text": str(error), "where": where}


def world_size(arguments: Sequence[str]) -> int:
    """Return the number of processes of one replica."""
    size = 1
    sizes = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size")
    for name in (*sizes, "--expert-model-parallel-size"):
        if name in arguments:
            size *= int(arguments[arguments.index(name) + 1])
    return size


def _arguments() -> Any:
    module = import_module("megatron.training.arguments")
    args = module.parse_args()
    if args.yaml_cfg is not None:  # as in ``initialize_megatron`` of MindSpeed-LLM
        return import_module("megatron.training.yaml_arguments").validate_yaml(args, {})
    module.validate_args(args, {})
    import_module("megatron.training.global_vars").set_args(args)
    return args


def _facts(args: Any) -> dict[str, Any]:
    return {"chunks": args.virtual_pipeline_model_parallel_size or 1, "stages": args.pipeline_model_parallel_size}


_EVENTS: list[tuple[str, Any]] = []
_INSIDE: list[str] = []


def _checkpoint(function: Any, *args: Any, **_: Any) -> Any:
    """Record what runs in ``tensor_parallel.checkpoint``: it is recomputed."""
    values = [value for value in args if not isinstance(value, bool)]
    if isinstance(function, megatron_stand_in.Module):
        _EVENTS.append(("operator", "mlp"))
        return function(*values)
    _INSIDE.append("full")
    try:
        return function(*values)
    finally:
        _INSIDE.pop()


class _Recorder:
    """A replacement of ``CheckpointWithoutOutput``."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def checkpoint(self, function: Any, *args: Any) -> Any:
        name = getattr(function, "label", None) or getattr(function, "__name__", type(function).__name__)
        labels = {
            "activation_function": "mlp.activation_func",
            "activation_func_with_probs": "mlp.experts.activation_func",
        }
        _EVENTS.append(("operator", labels.get(str(name), name)))
        return function(*(value for value in args if not isinstance(value, bool)))

    def discard_output(self) -> None:
        pass

    def recompute(self, *_: Any) -> None:
        pass

    def discard_output_and_register_recompute(self, _: Any) -> None:
        pass


class _Part(megatron_stand_in.Module):
    """A part of a layer without weights: a norm, an attention."""

    def __init__(self, label: str, pair: bool) -> None:  # noqa: FBT001
        self.label = label
        self.pair = pair

    def forward(self, *_: Any, **__: Any) -> Any:
        return (Anything(), None) if self.pair else Anything()


class _InputNorm(_Part):
    def __init__(self, **_: Any) -> None:
        super().__init__("input_layernorm", pair=False)


class _MlpNorm(_Part):
    def __init__(self, **_: Any) -> None:
        super().__init__("pre_mlp_layernorm", pair=False)


def _layers(args: Any) -> list[dict[str, Any]]:  # noqa: C901 - one step after the other
    config = import_module("megatron.training.arguments").core_transformer_config_from_args(args)
    stages = args.pipeline_model_parallel_size
    state: Any = import_module("megatron.core.parallel_state")
    checkpoint = import_module("megatron.core.tensor_parallel.random").checkpoint
    for name, module in list(sys.modules.items()):
        if name.startswith(("megatron", "mindspeed")):
            for key in ("CheckpointWithoutOutput",):
                if key in vars(module):
                    setattr(module, key, _Recorder)
            if "get_cuda_rng_tracker" in vars(module):
                module.get_cuda_rng_tracker = Anything  # type: ignore[attr-defined]  # a state of random numbers that none has set
            if vars(module).get("checkpoint") is checkpoint:
                module.checkpoint = _checkpoint  # type: ignore[attr-defined]
    vars(sys.modules["torch"])["Tensor"] = Anything  # layers test whether their input is an instance of it
    dual = getattr(args, "schedules_method", None) == "dualpipev"
    virtual = args.virtual_pipeline_model_parallel_size
    state._PIPELINE_MODEL_PARALLEL_DECODER_START = None
    state._MPU_PIPELINE_MODEL_PARALLEL_WORLD_SIZE = stages
    state._VIRTUAL_PIPELINE_MODEL_PARALLEL_WORLD_SIZE = virtual
    state.get_tensor_model_parallel_rank = lambda *_: 0
    state.get_tensor_model_parallel_world_size = lambda *_: 1
    cells = [(0, stage) for stage in range(stages)]
    if dual:
        cells += [(1, stage) for stage in reversed(range(stages))]
    cells += [(chunk, stage) for chunk in range(1, virtual or 1) for stage in range(stages)]
    found: list[dict[str, Any]] = []
    built: list[Any] = []

    def enter(chunk: int, stage: int) -> None:
        state._MPU_PIPELINE_MODEL_PARALLEL_RANK = stage
        state._VIRTUAL_PIPELINE_MODEL_PARALLEL_RANK = chunk if virtual else None
        args.dualpipev_first_chunk = chunk == 0

    for chunk, stage in cells:
        enter(chunk, stage)
        built.append(_block(args, config, stage))
    for (chunk, stage), (block, spec, build) in zip(cells, built, strict=True):
        enter(chunk, stage)
        rows = [_row(layer, stage, chunk) for layer in block.layers]
        _run(block, rows)
        if (chunk, stage) == cells[-1]:
            rows += _predictions(args, config, build, spec, (stage, chunk))
        found += [{**row, "place": len(found) + index} for index, row in enumerate(rows)]
    return found


def _block(args: Any, config: Any, stage: int) -> tuple[Any, Any, Any]:
    """Return a block of layers, with its arguments and how it was built."""
    layer_module = import_module("megatron.core.transformer.transformer_layer")
    block_module = import_module("megatron.core.transformer.transformer_block")
    specs = import_module("megatron.core.transformer.spec_utils")
    submodules = layer_module.TransformerLayerSubmodules(
        input_layernorm=_InputNorm,
        pre_mlp_layernorm=_MlpNorm,
        mlp=specs.ModuleSpec(module=import_module("megatron.core.transformer.mlp").MLP),
    )
    mixture = import_module("megatron.core.transformer.moe.moe_layer").MoELayer

    def build(spec: Any, *rest: Any, **named: Any) -> Any:
        kind = spec.module if isinstance(spec, specs.ModuleSpec) else spec
        if isinstance(kind, type) and kind.__name__ == "TransformerLayer":
            return kind(submodules=spec.submodules, **named)
        if isinstance(kind, type) and kind.__name__.lower().endswith(_OF_EXPERTS):
            return _experts(mixture, named["config"], args)
        if isinstance(kind, type) and kind.__name__ == "MLP":
            return _dense(kind, named["config"])
        return specs.build_module(spec, *rest, **named)

    for name, module in list(sys.modules.items()):
        if name.startswith(("megatron", "mindspeed")) and name != specs.__name__ and "build_module" in vars(module):
            module.build_module = build  # type: ignore[attr-defined]
    spec = specs.ModuleSpec(module=layer_module.TransformerLayer, submodules=submodules)
    if args.num_experts:
        spec.submodules.mlp = specs.ModuleSpec(module=mixture)
    block = block_module.TransformerBlock(config, spec, pre_process=stage == 0, post_process=False)
    return block, spec, build


def _predictions(args: Any, config: Any, build: Any, spec: Any, place: tuple[int, int]) -> list[dict[str, Any]]:
    """Return the layers of a prediction block: of the same spec, without their own numbers."""
    if not args.mtp_num_layers:
        return []
    layer = build(spec, config=config)
    row = {**_row(layer, *place), "kind": "prediction", "full": False}
    _EVENTS.clear()
    layer(hidden_states=Anything(), attention_mask=Anything())
    row["operators"] = _recomputed_parts(layer)
    return [row] * args.mtp_num_layers


def _row(layer: Any, stage: int, chunk: int) -> dict[str, Any]:
    noop = type(layer).__name__ == "NoopTransformerLayer"
    row: dict[str, Any] = {"stage": stage, "chunk": chunk, "number": layer.layer_number - 1}
    if noop:
        return {**row, "kind": "noop"}
    layer.self_attention = _Part("self_attention", pair=True)
    layer.cross_attention = _Part("cross_attention", pair=True)
    for name in ("self_attn_bda", "cross_attn_bda", "mlp_bda"):
        setattr(layer, name, lambda *_, **__: lambda *_, **__: Anything())
    return {**row, "kind": "experts" if _has_experts(layer) else "dense"}


# Megatron-LM's names for a layer of experts, and MindSpeed's replacements.
_OF_EXPERTS = ("moelayer", "moelayeradaptor")


def _has_experts(layer: Any) -> bool:
    return type(layer.mlp).__name__.lower().endswith(_OF_EXPERTS)


def _recomputed_parts(layer: Any) -> list[str]:
    """Return the parts that a forward pass of a layer recomputes, and those that a setting alone decides."""
    found = {name for _, name in _EVENTS}
    config = getattr(layer, "config", None)
    if config is not None and config.recompute_granularity == "selective":
        experts = _has_experts(layer)
        found |= {"self_attention.core_attention"} & {_OF_SETTING.get(name) for name in config.recompute_modules}
        found |= {"self_attention.qkv_up_proj"} & {_OF_SETTING.get(name) for name in config.recompute_modules}
        if experts and "moe" in config.recompute_modules:
            found.add("mlp")
        if experts and "moe_act" in config.recompute_modules and config.moe_grouped_gemm:
            found.add("mlp.experts.activation_func")
    return sorted(found)


_OF_SETTING = {"core_attn": "self_attention.core_attention", "mla_up_proj": "self_attention.qkv_up_proj"}


def _run(block: Any, found: list[dict[str, Any]]) -> None:
    """Run a forward pass."""

    class Watched:
        def __init__(self, layer: Any, row: dict[str, Any]) -> None:
            self.layer, self.row = layer, row
            self.layer_number = layer.layer_number

        def __call__(self, *args: Any, **named: Any) -> Any:
            self.row["full"] = bool(_INSIDE)
            _EVENTS.clear()
            result = self.layer(*args, **named)
            self.row["operators"] = _recomputed_parts(self.layer)
            return result

    block.layers = [Watched(layer, row) for layer, row in zip(block.layers, found, strict=True)]
    block.input_tensor = Anything()
    block(Anything(), Anything())


def _dense(kind: Any, config: Any) -> Any:
    made = object.__new__(kind)
    made.config = config
    made.activation_func = config.activation_func
    made.with_shared_expert = False
    made.linear_fc1 = made.linear_fc2 = _Part("linear", pair=True)
    return made


def _experts(kind: Any, config: Any, args: Any) -> Any:
    """Return a layer of experts with one expert."""
    ways = {"alltoall": "all2all", "alltoall_seq": "all2allseq", "allgather": "allgather"}
    overlapped = getattr(args, "moe_alltoall_overlap_comm", False) or getattr(args, "moe_allgather_overlap_comm", False)
    if overlapped:
        return _overlapped(kind, config, ways[args.moe_token_dispatcher_type])
    module = import_module("megatron.core.transformer.moe.experts")
    made = object.__new__(kind)
    made.config = config
    made.router = Anything()
    if config.moe_grouped_gemm:
        for name, grouped in list(sys.modules.items()):
            if name.endswith("grouped_gemm_util"):
                grouped.ops = Anything()  # type: ignore[attr-defined]
        made.experts = object.__new__(module.GroupedMLP)
        made.experts.config = config
        made.experts.num_local_experts = 1
        made.experts.weight1 = made.experts.weight2 = Anything()
        made.experts.activation_func_with_probs = made.experts.activation_func = activation_func_with_probs
        made.experts.layer_number = None
        made.experts.activation_recompute = False
        made.forward = lambda *_, **__: made.experts.forward(Anything(), Anything(), Anything())
    else:
        expert = _dense(import_module("megatron.core.transformer.mlp").MLP, config)
        made.experts = object.__new__(module.SequentialMLP)
        made.experts.local_experts = [expert]

        def forward(*_: Any, **__: Any) -> Any:
            result = expert(Anything())
            _EVENTS[:] = [(kind, name.replace("mlp.activation", "mlp.experts.activation")) for kind, name in _EVENTS]
            return result

        made.forward = forward
    return made


def _overlapped(kind: Any, config: Any, way: str) -> Any:
    """Return a layer of experts whose pass and communication are one operator: it calls this function to decide on recomputation."""
    folder = "mindspeed.core.transformer.moe.moe_feature.overlap"
    asked = import_module(f"{folder}.grouped_mlp_with_comp_and_comm_overlap_{way}").should_recompute_activation
    made = object.__new__(kind)
    made.config = config
    made.router = Anything()
    made.experts = SimpleNamespace(layer_number=None)

    def forward(*_: Any, **__: Any) -> Any:
        if asked(made.experts.layer_number):
            _EVENTS.append(("operator", "mlp.experts.activation_func"))
        return Anything(), None

    made.forward = forward
    return made


def activation_func_with_probs(*_: Any, **__: Any) -> Any:
    """Replace the activation function of experts."""
    return Anything()


if __name__ == "__main__":
    main()
