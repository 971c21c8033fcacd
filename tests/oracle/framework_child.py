"""Starts MindFormers on configs, from the source inside its wheel and without MindSpore: a process of its own.

Called with the wheel's path; reads one config (a JSON text) a line and answers with one line: what MindFormers raised and
where, or null. The modules that read, check and set a config are MindFormers' own, imported straight out of the wheel;
everything else (MindSpore, datasets, callbacks, networks) is a stand-in that accepts whatever is done with it. Of
MindSpore, the few functions that check what a config says are told again below.
"""

# ruff: noqa: ANN401, EM101, EM102, TRY003, PTH123, SIM115 - it stands for anything, and raises in MindSpore's way

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.machinery
import json
import math
import os
import re
import signal
import sys
import types
from typing import Any

# What is run for real; a package is not run itself, it only leads to its modules.
REAL = {
    "mindformers.core.config_args",
    "mindformers.core.context.build_context",
    "mindformers.core.context.parallel",
    "mindformers.core.context.validators",
    "mindformers.core.parallel_config",
    "mindformers.models.configuration_utils",
    "mindformers.models.deepseek3.config_converter_deepseek_v3",
    "mindformers.models.deepseek3.configuration_deepseek_v3",
    "mindformers.models.deepseek3.utils",
    "mindformers.models.llama.llama",
    "mindformers.models.llama.llama_config",
    "mindformers.models.llama.llama_layer",
    "mindformers.models.llama.llama_transformer",
    "mindformers.models.model_config_utils",
    "mindformers.models.modeling_utils",
    "mindformers.models.qwen3.config_converter_qwen3",
    "mindformers.models.qwen3.configuration_qwen3",
    "mindformers.models.utils",
    "mindformers.modules.layers",
    "mindformers.modules.transformer.moe",
    "mindformers.modules.transformer.op_parallel_config",
    "mindformers.modules.transformer.transformer",
    "mindformers.parallel_core.config_converter",
    "mindformers.parallel_core.mf_model_config",
    "mindformers.parallel_core.model_parallel_config",
    "mindformers.parallel_core.transformer_config",
    "mindformers.parallel_core.transformer_config_utils",
    "mindformers.parallel_core.training_graph.base_models.common.embeddings.yarn_rotary_pos_embedding",
    "mindformers.parallel_core.training_graph.transformer.utils",
    "mindformers.tools.check_rules",
    "mindformers.tools.register.config",
    "mindformers.tools.register.template",
    "mindformers.tools.utils",
    "mindformers.trainer.base_trainer",
    "mindformers.trainer.config_args",
    "mindformers.trainer.trainer",
}
# Names that packages hand on, and where they are made.
EXPORTS = {
    "ConfigTemplate": "tools.register.template",
    "MindFormerConfig": "tools.register.config",
    "DictConfig": "tools.register.config",
    "FreqsMgr": "modules.layers",
    "LowerTriangularMaskWithDynamic": "modules.transformer.transformer",
    "MoEConfig": "modules.transformer.moe",
    "TransformerOpParallelConfig": "modules.transformer.transformer",
    "TransformerRecomputeConfig": "modules.transformer.transformer",
    "TransformerSwapConfig": "modules.transformer.transformer",
    "EmbeddingOpParallelConfig": "modules.transformer.transformer",
    "MODE": "tools.utils",
    "PARALLEL_MODE": "tools.utils",
    "PretrainedConfig": "models.configuration_utils",
    "is_legacy_model": "core.context.build_context",
    "get_context": "core.context.build_context",
    "set_context": "core.context.build_context",
    "build_context": "core.context.build_context",
}
OUTSIDE = {*sys.stdlib_module_names, "numpy", "yaml", "_yaml", "regex"}
SECONDS = 0.5  # of this process's own time; a config that starts takes some hundredths
CONTEXT = {
    "parallel_mode": "stand_alone",
    "full_batch": False,
    "dataset_strategy": "data_parallel",
    "pipeline_stages": 1,
    "pipeline_interleave": False,
    "pipeline_scheduler": "1f1b",
    "devices": 1,
}
# What `mindspore.set_auto_parallel_context` knows (mindspore/parallel/_auto_parallel_context.py, MindSpore 2.9).
PARALLEL_KEYS = {
    *("device_num", "global_rank", "gradients_mean", "gradient_fp32_sync", "loss_repeated_mean", "pipeline_stages"),
    *("auto_pipeline", "pipeline_result_broadcast", "pipeline_segments", "parallel_mode", "search_mode"),
    *("auto_parallel_search_mode", "parameter_broadcast", "strategy_ckpt_load_file", "strategy_ckpt_save_file"),
    *("group_ckpt_save_file", "full_batch", "dataset_strategy", "enable_parallel_optimizer"),
    *("force_fp32_communication", "parallel_optimizer_config", "pipeline_config", "grad_accumulation_step"),
    *("all_reduce_fusion_config", "communi_parallel_mode", "optimizer_weight_shard_size"),
    *("optimizer_weight_shard_aggregated_save", "sharding_propagation", "enable_alltoall", "strategy_ckpt_config"),
    *("comm_fusion", "dump_local_norm", "dump_local_norm_path", "dump_device_local_norm"),
    *("auto_parallel_new_interface", "init_param_in_compile"),
}
# Of what type it takes them to be; a null is left alone.
PARALLEL_TYPES = {
    **dict.fromkeys(("gradients_mean", "gradient_fp32_sync", "loss_repeated_mean", "parameter_broadcast"), bool),
    **dict.fromkeys(("full_batch", "enable_parallel_optimizer", "enable_alltoall", "sharding_propagation"), bool),
    **dict.fromkeys(("optimizer_weight_shard_aggregated_save", "force_fp32_communication"), bool),
    **dict.fromkeys(("device_num", "global_rank", "grad_accumulation_step", "optimizer_weight_shard_size"), int),
    **dict.fromkeys(("parallel_mode", "search_mode", "auto_parallel_search_mode", "communi_parallel_mode"), str),
    **dict.fromkeys(("strategy_ckpt_load_file", "strategy_ckpt_save_file", "group_ckpt_save_file"), str),
    **dict.fromkeys(("comm_fusion", "strategy_ckpt_config"), dict),
    "all_reduce_fusion_config": list,
}
SCHEDULERS = ("1f1b", "gpipe", "seqpipe", "seqvpp", "seqsmartvpp", "zero_bubble_v")
MEMORY = re.compile(r"[1-9][0-9]*(\.)?[0-9]*GB|0\.[0-9]*GB", re.ASCII)


class Hang(BaseException):
    """MindFormers used up its time."""


class Anything(type):
    """A class that stands for whatever MindSpore has: it can be called, used as a base, asked for anything."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        decorates = len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type))
        if decorates and cls.__bases__ == (Something,):
            return args[0]
        return super().__call__(*args, **kwargs)

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls

    def __iter__(cls) -> Any:
        return iter(())

    def __len__(cls) -> int:
        return 0

    def __getitem__(cls, key: object) -> type:
        return cls


class Something(metaclass=Anything):
    """What a call of a stand-in gives: a thing with any attribute, which can be called, too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
            return args[0]
        return self

    def __iter__(self) -> Any:
        return iter(())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None: ...


def stand_in(name: str) -> Any:
    """A new one."""
    return Anything(name, (Something,), {})


class Cell(Something):
    """MindSpore's cell, of which layers are made: it knows the cells inside it, and ``offload`` checks what it is given."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Cell):
            vars(self).setdefault("inside", {})[name] = value
        super().__setattr__(name, value)

    def offload(self, backward_prefetch: Any = "Auto") -> None:
        if isinstance(backward_prefetch, str):
            check_string(backward_prefetch, ["Auto"], "backward_prefetch")
        else:
            check_number(int, 0, above=False)(backward_prefetch)


class Module(types.ModuleType):
    """A module or package that is not run."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "2.9.0"
        if name.startswith("__"):
            raise AttributeError(name)
        inside = self.__name__.startswith("mindformers")
        if inside and f"{self.__name__}.{name}" in REAL:
            return importlib.import_module(f"{self.__name__}.{name}")
        if inside and name in EXPORTS:
            return getattr(importlib.import_module(f"mindformers.{EXPORTS[name]}"), name)
        value = type(name, (), {}) if name.endswith("Mixin") else stand_in(name)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for every module that is neither Python's, nor one of the few needed, nor real."""

    def __init__(self, wheel: str) -> None:
        self._wheel = wheel

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> Any:
        if name in REAL or name.partition(".")[0] in OUTSIDE:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        module = Module(spec.name)
        inside = spec.name.partition(".")[0] == "mindformers"
        module.__path__ = [f"{self._wheel}/{spec.name.replace('.', '/')}"] if inside else []
        return module

    def exec_module(self, module: types.ModuleType) -> None: ...


def check_number(kind: type[int | float], least: float, *, above: bool) -> Any:
    """``mindspore._checkparam.check_positive_int`` and its like."""

    def check(value: Any, name: str = "input value", _prim: object = None) -> Any:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"The '{name}' must be {kind.__name__}, but got '{type(value).__name__}'")
        if math.isinf(value) or math.isnan(value) or value < least or (above and value == least):
            raise ValueError(f"The '{name}' must be {kind.__name__} and must be larger, but got '{value}'.")
        return value

    return check


def check_bool(value: Any, name: str = "input value", _prim: object = None) -> Any:
    if not isinstance(value, bool):
        raise TypeError(f"The '{name}' must be a bool, but got {type(value).__name__}.")
    return value


def check_string(value: Any, known: Any, name: str = "input value", _prim: object = None) -> Any:
    if not (isinstance(value, str) and value in known):
        raise ValueError(f"The '{name}' must be str and must be in '{known}', but got '{value}'.")
    return value


def set_auto_parallel_context(**values: Any) -> None:
    """What MindSpore does with the section ``parallel``."""
    for key, value in values.items():
        if key not in PARALLEL_KEYS:
            raise ValueError(f"Set context keyword {key} is not recognized!")
        if value is not None and not isinstance(value, PARALLEL_TYPES.get(key, object)):
            raise TypeError(f"The parameter '{key}' must be {PARALLEL_TYPES[key]}, but got {type(value)}")
        if key == "pipeline_config":
            set_pipeline_config(value)
        elif key in CONTEXT:
            current[key] = value
            if key == "full_batch" and value:
                current["dataset_strategy"] = "full_batch"


def set_pipeline_config(value: Any) -> None:
    if not isinstance(value, dict):
        raise TypeError("For 'set_pipeline_config', the argument must be dict")
    for key in value:
        if key not in ("pipeline_interleave", "pipeline_scheduler"):
            raise ValueError(f"Unknown config: {[key]}")
    current["pipeline_interleave"] = check_bool(value["pipeline_interleave"], "pipeline_interleave")
    current["pipeline_scheduler"] = check_string(value["pipeline_scheduler"], SCHEDULERS)
    if not value["pipeline_interleave"] and value["pipeline_scheduler"] != "1f1b":
        raise TypeError("When pipeline_interleave is False, only '1f1b' is allowed.")


def set_context(**values: Any) -> None:
    """``mindspore.set_context``: the memory's sizes and the level of its optimisation, and ``jit_config``."""
    for key in ("max_device_memory", "mempool_block_size"):
        if key in values:
            check_memory(values[key])
    if values.get("memory_optimize_level", "O0") not in ("O0", "O1"):
        raise ValueError("the value of 'memory_optimize_level' must be one of ['O0', 'O1']")
    config = values.get("jit_config")
    if config is not None:
        known = {"jit_level": ("O0", "O1", "O2"), "infer_boost": ("on", "off")}
        for key, value in config.items():
            if key not in known or value not in known[key]:
                raise ValueError(f"For 'jit_config', {key} cannot be {value}")
        if config.get("infer_boost") == "on" and config.get("jit_level", "O0") != "O0":
            raise ValueError("Only jit_level O0 support infer_boost")


def set_memory(**values: Any) -> None:
    """``mindspore.runtime.set_memory``."""
    for key in ("max_size", "increase_size"):
        if key in values:
            check_memory(values[key])
    if values.get("optimize_level", "O0") not in ("O0", "O1"):
        raise ValueError("the value of 'optimize_level' must be one of ['O0', 'O1']")


def check_memory(value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError("the memory size must be a str")
    if not MEMORY.match(value) or value in ("0GB", "0.0GB"):
        raise ValueError("the memory size must be written as 58GB")


current: dict[str, Any] = dict(CONTEXT)


def install(wheel: str) -> None:
    """Put the stand-ins in place."""
    sys.meta_path.insert(0, Finder(wheel))
    for name in ("mindspore.context", "mindspore"):
        module: Any = importlib.import_module(name)
        module.set_auto_parallel_context = set_auto_parallel_context
        module.get_auto_parallel_context = lambda key: current[key]
        module.set_context = set_context
        module.GRAPH_MODE, module.PYNATIVE_MODE = 0, 1
    for name in ("mindspore.nn.cell", "mindspore.nn"):
        cells: Any = importlib.import_module(name)
        cells.Cell = Cell
    context: Any = sys.modules["mindspore.context"]
    for name in ("mindspore.communication", "mindspore.communication.management"):
        module = importlib.import_module(name)
        module.get_group_size = lambda *_: current["devices"]
        module.get_rank = module.get_local_rank = lambda *_: 0
    modes = ("stand_alone", "data_parallel", "hybrid_parallel", "semi_auto_parallel", "auto_parallel")
    context.ParallelMode = types.SimpleNamespace(**{mode.upper(): mode for mode in modes})
    mindspore: Any = sys.modules["mindspore"]
    mindspore.context = context
    mindspore.runtime = types.SimpleNamespace(set_memory=set_memory, set_cpu_affinity=lambda *_: None)
    checks: Any = importlib.import_module("mindspore._checkparam")
    checks.Validator = types.SimpleNamespace(
        check_bool=check_bool,
        check_type_name=lambda *_, **__: None,
        check_subclass=lambda *_, **__: None,
        check_value_type=lambda *_, **__: None,
        check_string=check_string,
        check_positive_int=check_number(int, 0, above=True),
        check_non_negative_int=check_number(int, 0, above=False),
        check_positive_float=check_number(float, 0.0, above=True),
        check_non_negative_float=check_number(float, 0.0, above=False),
    )
    checks.args_type_check = lambda **_: lambda function: function
    parallel: Any = importlib.import_module("mindspore.parallel._utils")
    parallel._get_parallel_mode = lambda: current["parallel_mode"]
    logger: Any = importlib.import_module("mindformers.tools.logger")
    logger.logger = Something()
    versions: Any = importlib.import_module("mindformers.version_control")
    versions.check_tft_valid = lambda: False  # no fault tolerance unless an environment variable asks for it
    yaml: Any = importlib.import_module("yaml")
    yaml.SafeLoader = yaml.CSafeLoader  # the same, and faster
    yaml.compose.__defaults__ = (yaml.CSafeLoader,)
    yaml.safe_load = lambda stream: yaml.load(stream, yaml.CSafeLoader)


class Framework:
    """MindFormers, with what a run goes through from reading the config to setting the layers of the network."""

    def __init__(self, version: str) -> None:
        load = importlib.import_module
        self.config: Any = load("mindformers.tools.register.config")
        self.context: Any = load("mindformers.core.context.build_context")
        self.sections: Any = load("mindformers.core.parallel_config")
        self.base: Any = load("mindformers.trainer.base_trainer")
        self.trainer: Any = load("mindformers.trainer.trainer")
        self.modeling: Any = load("mindformers.models.modeling_utils")
        self.further: Any = load("mindformers.models.deepseek3.utils")
        self.converter: Any = load("mindformers.parallel_core.transformer_config_utils")
        config: Any = load("mindformers.models.llama.llama_config")
        qwen: Any = load("mindformers.models.qwen3.configuration_qwen3")
        deepseek: Any = load("mindformers.models.deepseek3.configuration_deepseek_v3")
        self.models = {
            "LlamaConfig": config.LlamaConfig,
            "qwen3": qwen.Qwen3Config,
            "deepseek_v3": deepseek.DeepseekV3Config,
        }
        layers: Any = load("mindformers.parallel_core.training_graph.transformer.utils")
        old: Any = load("mindformers.models.utils")
        self.core_setting = layers.LayerSetting
        self.reduced = version == "1.6"  # where Mcore models have a class of their own, without swap and exclusions
        self.legacy_setting = old.LayerSetting if version == "1.6" else layers.LayerSetting
        for kind in (self.core_setting, self.legacy_setting):
            kind.set_pattern_recompute = staticmethod(lambda layer, segments, *_, **__: find(layer, segments, version))
            kind.set_pattern_swap = staticmethod(
                lambda _, segments, *__, **___: find(Cell(), [segments[0], ""], version)
            )
        llama: Any = load("mindformers.models.llama.llama")
        llama.LayerSetting = lambda *_: self.keep  # how layers are set is asked for beforehand
        self.llama = llama.LlamaModel
        self.layer: Any = None
        self.step = ""

    def start(self, path: str) -> None:
        """What ``run_mindformer.py`` and ``Trainer.train`` do until the network is wrapped.

        Left out: datasets, checkpoints and the optimizer, and the operators inside a layer.
        """
        self.forget()
        self.step = "load"
        config = self.config.MindFormerConfig(path)
        self.step = "context"
        self.size(config)
        self.context.build_context(config)
        self.step = "trainer"
        trainer = self.trainer.Trainer.__new__(self.trainer.Trainer)
        trainer.config = config
        if hasattr(trainer, "_reassign_monitor_config"):
            trainer._reassign_monitor_config()
        self.sections.build_parallel_config(config)
        trainer._build_profile_cb()
        trainer._check_config_type()
        self.step = "batches"
        base = self.base.BaseTrainer.__new__(self.base.BaseTrainer)
        base.config = config
        base._check_grad_accumulation_steps()
        base._check_global_batch_size_for_auto_parallel()
        base._reset_wrapper()
        self.step = "rules"
        self.base.check_rules(config, mode="train")
        self.step = "network"
        self.build(config)
        self.step = "wrap"
        base.wrap_network_with_tool_cells(Something())

    def forget(self) -> None:
        """What the process remembers of the last config."""
        current.clear()
        current.update(CONTEXT)
        for kind in (self.context.Context, self.context.MFContextOperator):
            kind._instance = None
        getattr(self.converter, "ERROR_LOG", {}).clear()
        for name in ("RUN_MODE", "MS_ENABLE_GRACEFUL_EXIT"):
            os.environ.pop(name, None)

    def size(self, config: Any) -> None:
        """As many devices as the config is for: how many there are is not in it."""
        ways = 1
        for key in ("data_parallel", "model_parallel", "context_parallel", "pipeline_stage"):
            value = (config.parallel_config or {}).get(key)
            ways *= value if isinstance(value, int) and value > 0 else 1
        current["devices"] = ways

    def build(self, config: Any) -> None:
        """The configuration of the model and the settings of its layers."""
        given = {"parallel_config": config.parallel_config, "batch_size": config.runner_config.mini_batch_size}
        values = dict(config.model.model_config)
        values.pop("type", None)
        if getattr(self.context, "is_legacy_model", lambda: config.use_legacy is not False)():
            model = self.models["LlamaConfig"](**{**values, **given, "moe_config": config.moe_config})
            checked = types.SimpleNamespace(config=model)
            self.modeling.PreTrainedModel.check_pipeline_stage(checked)
            count, model.num_layers = model.num_layers, min(model.num_layers, 1)  # one layer is built like another
            self.llama(model)
            model.num_layers = count
            self.set_layers(self.legacy_setting, model, model.parallel_config, model.pp_interleave_num)
            return
        kind = self.models[values.pop("model_type", "qwen3")]
        model = kind(**{**values, **given, **dict(config.moe_config)})
        mla = kind is self.models["deepseek_v3"]
        self.layer = Cell()
        for name in ("input_layernorm", "self_attention", "pre_mlp_layernorm", "mlp"):
            setattr(self.layer, name, Cell())
        if hasattr(model, "convert_to_transformer_config"):
            core = model.convert_to_transformer_config(is_mla_model=mla)
        else:
            core = self.converter.convert_to_transformer_config(model, is_mla_model=mla)
        self.set_layers(self.core_setting, core, core, core.virtual_pipeline_model_parallel_size)
        kind = self.further.DeepseekV3PreTrainedModel if mla else self.modeling.PreTrainedModel
        kind.check_pipeline_stage(types.SimpleNamespace(config=model))

    def keep(self, layer: Any, _number: int) -> None:
        """Remember a layer as it is built."""
        self.layer = layer

    def set_layers(self, kind: Any, model: Any, parallel: Any, chunks: Any) -> None:
        """The layers one by one, and behind them those that predict further tokens, which have a setting of their own."""
        further = getattr(model, "mtp_num_layers", None) or 0
        stages = (getattr(model, "start_stage", 0), getattr(model, "stage_num", 0))
        reduced = self.reduced and kind is self.core_setting
        count = model.num_layers + further if reduced else model.num_layers
        arguments = (count, model.offset, parallel, chunks, *(() if reduced else stages))
        setting = kind(*arguments)
        for number in range(model.num_layers):
            setting(self.layer, number)
        setting = kind(*arguments) if further else setting
        for number in range(further):
            setting(self.layer, model.num_layers + number if reduced else model.num_layers - 1)


def meets(segment: str, name: str, version: str) -> bool:
    """Whether a name is what a part of a pattern stands for; the part may be no expression at all."""
    engine: Any = re if version == "1.6" else importlib.import_module("regex")
    return bool(engine.fullmatch(segment, name))


def find(layer: Cell, segments: list[str], version: str) -> str:
    """``set_pattern_recompute``: the last part is compared with all that ``dir`` lists, beginning with the class.

    The class has a ``recompute`` as well, which fails for want of a cell.
    """
    first, *rest = segments
    if rest:
        for name, cell in vars(layer).get("inside", {}).items():
            if meets(first, name, version):
                find(cell, rest, version)
        meets(first, "name", version)  # some name there is in any case
    elif meets(first, "__class__", version):
        raise AttributeError("'bool' object has no attribute 'construct'")
    return ""


def answer(framework: Framework, path: str) -> dict[str, str] | None:
    """What went wrong with a config."""
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        framework.start(path)
    except Hang:
        return {"step": framework.step, "error": "endless-loop", "text": ""}
    except Exception as error:  # noqa: BLE001 - whatever it is
        return {"step": framework.step, "error": type(error).__name__, "text": str(error)[:300]}
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return None


def give_up(_signal: int, _frame: object) -> None:
    raise Hang


def main() -> None:
    """Answer until there are no more lines."""
    wheel, version, place = sys.argv[1:]
    os.chdir(place)
    signal.signal(signal.SIGVTALRM, give_up)
    install(wheel)
    framework = Framework(version)
    gc.disable()
    out = sys.stdout
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")
    for line in sys.stdin:
        with open("case.yaml", "w", encoding="utf-8") as file:
            file.write(json.loads(line))
        out.write(json.dumps(answer(framework, "case.yaml")) + "\n")
        out.flush()
        gc.collect(0)


if __name__ == "__main__":
    main()
