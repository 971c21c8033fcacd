"""Start MindFormers on configs, from the source inside its wheel and without MindSpore, as a separate process.

Run as a module with the wheel's path, the release and an output folder; reads one config (a JSON text) per line and
answers with one line: MindFormers' exception and its place, or null. The modules that read, check and set a config are
MindFormers' own, imported from the wheel; everything else (MindSpore, datasets, callbacks, networks) is a stand-in that
accepts any use (:mod:`tests.oracle.framework_child_stand_ins`). The few functions of MindSpore that check values of a
config are reimplemented (:mod:`tests.oracle.framework_child_mindspore`).
"""

# ruff: noqa: ANN401, EM101, EM102, TRY003, PTH123, SIM115 - it stands for anything, and raises in MindSpore's way

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import signal
import sys
import types
from typing import Any

from tests.oracle.framework_child_mindspore import CONTEXT, current
from tests.oracle.framework_child_stand_ins import NETWORKS, Cell, Something, install

SECONDS = 0.5  # of this process's own time; a valid config takes some hundredths


class Hang(BaseException):
    """A timeout of MindFormers."""


class Framework:
    """MindFormers, from reading the config to setting the layers of the network."""

    def __init__(self, version: str) -> None:
        load = importlib.import_module
        self.environment = {*os.environ} - {"RUN_MODE", "MS_ENABLE_GRACEFUL_EXIT"}
        self.config: Any = load("mindformers.tools.register.config")
        self.context: Any = load("mindformers.core.context.build_context")
        self.context.psutil.cpu_count = os.cpu_count  # shared among the devices for configs without training
        self.sections: Any = load("mindformers.core.parallel_config")
        self.utils: Any = load("mindformers.tools.utils")
        self.base: Any = load("mindformers.trainer.base_trainer")
        self.trainer: Any = load("mindformers.trainer.trainer")
        self.modeling: Any = load("mindformers.models.modeling_utils")
        self.further: Any = load("mindformers.models.deepseek3.utils")
        self.converter: Any = load("mindformers.parallel_core.transformer_config_utils")
        qwen: Any = load("mindformers.models.qwen3.configuration_qwen3")
        deepseek: Any = load("mindformers.models.deepseek3.configuration_deepseek_v3")
        self.models = {
            "LlamaConfig": load("mindformers.models.llama.llama_config").LlamaConfig,
            "ChatGLM2Config": load("mindformers.models.glm2.glm2_config").ChatGLM2Config,
            "qwen3": qwen.Qwen3Config,
            "deepseek_v3": deepseek.DeepseekV3Config,
        }
        layers: Any = load("mindformers.parallel_core.training_graph.transformer.utils")
        old: Any = load("mindformers.models.utils")
        self.core_setting = layers.LayerSetting
        self.reduced = version == "1.6"  # where Mcore models have a class of their own, without swap and exclusions
        self.legacy_setting = old.LayerSetting if version == "1.6" else layers.LayerSetting
        self.stand_in_for_patterns(version)
        llama: Any = load("mindformers.models.llama.llama")
        glm: Any = load("mindformers.models.glm2.glm2")
        self.networks = {"LlamaConfig": llama.LlamaModel, "ChatGLM2Config": glm.ChatGLM2Model}
        layers_of_glm: Any = load("mindformers.models.glm2.glm2_transformer")
        llama.LayerSetting = layers_of_glm.LayerSetting = lambda *_: self.keep  # set_layers records how layers are set
        self.layer: Any = None
        self.step = ""

    def stand_in_for_patterns(self, version: str) -> None:
        """Match patterns only with names that every layer has: the operators inside a layer are stand-ins."""
        for kind in (self.core_setting, self.legacy_setting):
            kind.set_pattern_recompute = staticmethod(lambda layer, segments, *_, **__: find(layer, segments, version))
            kind.set_pattern_swap = staticmethod(
                lambda _, segments, *__, **___: find(Cell(), [segments[0], ""], version)
            )

    def start(self, path: str) -> None:
        """Do what ``run_mindformer.py`` and ``Trainer.train`` do until the network is wrapped.

        Datasets, checkpoints, the optimizer, and the operators inside a layer are left out.
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
        """Clear the state of the previous config."""
        current.clear()
        current.update(CONTEXT)
        for kind in (self.context.Context, self.context.MFContextOperator):
            kind._instance = None
        getattr(self.converter, "ERROR_LOG", {}).clear()
        for name in os.environ.keys() - self.environment:  # variables that the context has set for one mode
            del os.environ[name]

    def size(self, config: Any) -> None:
        """Set the number of devices to that of the config, which does not contain it."""
        ways = 1
        for key in ("data_parallel", "model_parallel", "context_parallel", "pipeline_stage"):
            value = (config.parallel_config or {}).get(key)
            ways *= value if isinstance(value, int) and value > 0 else 1
        current["devices"] = ways

    def is_legacy(self) -> bool:
        """Return whether the config uses a legacy network: a function from 1.7 on, the context in 1.6."""
        if hasattr(self.context, "is_legacy_model"):
            return bool(self.context.is_legacy_model())
        return bool(self.utils.get_context("use_legacy", default_value=True))

    def build(self, config: Any) -> None:
        """Build the model's configuration and the settings of its layers."""
        given = {"parallel_config": config.parallel_config, "batch_size": config.runner_config.mini_batch_size}
        values = dict(config.model.model_config)
        kind = values.pop("type", "LlamaConfig")
        if self.is_legacy():
            model = self.models[kind](**{**values, **given, "moe_config": config.moe_config})
            checked = types.SimpleNamespace(config=model)
            self.modeling.PreTrainedModel.check_pipeline_stage(checked)
            count, model.num_layers = model.num_layers, min(model.num_layers, 1)  # all layers are built alike
            self.networks[kind](model)
            model.num_layers = count
            self.set_layers(self.legacy_setting, model, model.parallel_config, model.pp_interleave_num)
            self.compile(model)
            return
        self.choose(values)
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

    def compile(self, model: Any) -> None:
        """Raise errors that occur only when a layer is called: its block is missing, or FlashAttentionScore refuses the heads."""
        if model.n_kv_heads and model.num_heads % model.n_kv_heads:
            raise ValueError("N2 must be a factor of N1")
        if model.num_layers > 0 and getattr(self.layer, "feed_forward", self) is None:
            raise TypeError("'NoneType' object is not callable")

    def choose(self, values: dict[str, Any]) -> None:
        """Return the class of the network, which states whether it can be trained; the trained network is a stand-in.

        Some networks are built for inference by default, and nothing requests training: they have no loss.
        """
        name = values["architectures"][0]
        if name in NETWORKS:
            network = getattr(importlib.import_module(NETWORKS[name]), name)(config=None)
            if type(network).__name__.startswith("Inference"):
                raise NotImplementedError(f"{name} builds its network for inference")

    def keep(self, layer: Any, _number: int) -> None:
        """Record a layer when it is built."""
        self.layer = layer

    def set_layers(self, kind: Any, model: Any, parallel: Any, chunks: Any) -> None:
        """Set the layers one by one, then the prediction layers, which have their own setting."""
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
    """Return whether a part of a pattern matches a name; the part may be an invalid expression."""
    engine: Any = re if version == "1.6" else importlib.import_module("regex")
    return bool(engine.fullmatch(segment, name))


def find(layer: Cell, segments: list[str], version: str) -> str:
    """Match like ``set_pattern_recompute``: the last part is compared with all names of ``dir``, beginning with the class.

    The class also has a method ``recompute``, which fails without a cell.
    """
    first, *rest = segments
    if rest:
        for name, cell in vars(layer).get("inside", {}).items():
            if meets(first, name, version):
                find(cell, rest, version)
        meets(first, "name", version)  # any existing name
    elif meets(first, "__class__", version):
        raise AttributeError("'bool' object has no attribute 'construct'")
    return ""


def answer(framework: Framework, path: str) -> dict[str, str] | None:
    """Return the failure of a config."""
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
