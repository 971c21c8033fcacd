"""Start MindFormers' static graph on complete configs and report its effect on each layer, as a separate process.

Run as a module with the wheel's path, the release and an output folder. It does the same as
:mod:`tests.oracle.framework_child`, with the model's own classes of every kind (the registry, the config class, its
conversion, the network's class that states which layers have experts); then the real ``LayerSetting`` matches patterns
in layers made from ms-tune's trees, which come from real networks. Each answer has the exception and its place, or the
log lines about layers and the effect on each of them; also the values of the loaded config, the fields of the model's
configuration from which the network is built, and the kind of network that each query returns.
"""

# ruff: noqa: ANN401, PTH123, SIM115 - MindFormers has no types; a process's own files

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
from typing import Any

from ms_tune.dialects.operators import Tree, layer_model
from tests.oracle import framework_child_stand_ins as stand_ins
from tests.oracle.framework_child import SECONDS, Framework, Hang, give_up
from tests.oracle.layer_setting import check_offload
from tests.oracle.model_child import add_models, has_experts, install
from tests.oracle.whole_cases import ARCHITECTURES

_LEGACY = {"LlamaConfig": "LlamaForCausalLM", "ChatGLM2Config": "ChatGLM2ForConditionalGeneration"}


class _Part:
    """A part that records the calls on it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def recompute(self, mode: bool = True, **_: object) -> None:  # noqa: FBT001, FBT002 - the framework's signature
        self.asked.append("recompute" if mode else "exclude")

    def add_prim_attr(self, name: str, value: bool) -> None:  # noqa: FBT001 - as above
        self.asked.append(f"{name}={value}")


class Operator(_Part):
    """A primitive."""

    def _offload(self, backward_prefetch: object) -> None:
        check_offload(backward_prefetch)
        self.asked.append("swap")


class Layer(_Part):
    """A cell with the operators and cells of a tree."""

    def __init__(self, tree: Tree) -> None:
        super().__init__()
        self._cells = {name: Layer(child) for name, child in tree.cells}
        for name in tree.operators:
            setattr(self, name, Operator())
        self.pipeline_stage: int | None = None
        self.pipeline_segment: int | None = None

    def offload(self, backward_prefetch: object) -> None:
        check_offload(backward_prefetch)
        self.asked.append("swap")

    def set_comm_fusion(self, number: int) -> None:
        """Ignore the request: nothing is fused here."""


class _Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str, *values: object) -> None:
        self.lines.append(str(text) % values if values else str(text))

    warning = info

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class Static(Framework):
    """MindFormers up to the settings of the layers of any model that it trains."""

    def __init__(self, version: str, models: list[str]) -> None:
        self.log = _Log()
        logger: Any = importlib.import_module("mindformers.tools.logger")
        logger.logger = self.log
        self.networks_made: list[Any] = []
        network: Any = importlib.import_module("mindformers.parallel_core.training_graph.base_models.gpt.gpt_model")
        network.GPTModel = self._remember
        super().__init__(version)
        self.version = version
        for name in models:
            importlib.import_module(name)
        self.registry: Any = importlib.import_module("mindformers.tools.register.register")
        self.answer: dict[str, Any] = {}
        self.tree: Any = None  # by layer number; the prediction layer follows the last layer
        self.other = False  # whether the network is another model's, so that its layers are unknown
        self.read: dict[str, Any] = {}

    def stand_in_for_patterns(self, version: str) -> None:
        """Do nothing: here patterns are matched with real names."""

    def size(self, config: Any) -> None:
        """Set the number of devices; this is the first call after a config is loaded."""
        self.read["config"] = config
        super().size(config)

    def _remember(self, config: Any, transformer_layer_spec: Any = None, **_: Any) -> Any:
        self.networks_made.append((config, transformer_layer_spec))
        return stand_ins.Something()

    def build(self, config: Any) -> None:
        """Run the model's own classes, from the section to the settings of its layers."""
        template: Any = importlib.import_module("mindformers.tools.register.template")
        sections = type(config.moe_config).__name__ == "MoEConfig"
        filled = bool(template.ConfigTemplate.use_legacy)
        self.read["legacy"] = {"network": self.is_legacy(), "template": filled, "sections": sections}
        kind = config.model.model_config.get("type")
        if self.is_legacy():
            if kind is None and "model_type" in config.model.model_config:  # otherwise a stand-in for an unknown class
                self.registry.MindFormerRegister.get_instance_from_cfg(
                    config.model.model_config, self.registry.MindFormerModuleType.CONFIG
                )
            self.tree, self.other = self._legacy_tree(kind, config), False
            super().build(config)
            return
        builder: Any = importlib.import_module("mindformers.models.build_config")
        given = {"parallel_config": config.parallel_config, "batch_size": config.runner_config.mini_batch_size}
        if config.get("pretrained_model_dir", None):  # as the trainer's create_network does
            config.model.pretrained_model_dir = config.pretrained_model_dir
        model = builder.get_model_config(config.model, default_args={**given, **dict(config.moe_config)})
        types_, register = self.registry.MindFormerModuleType, self.registry.MindFormerRegister
        self.networks_made.clear()
        values = model.to_dict()
        self.step = "class"
        register.get_instance_from_cfg(values, types_.MODELS, default_args={"config": model})
        core, spec = self.networks_made[-1]
        specs = getattr(spec, "layer_specs", None) or [spec] * core.num_layers
        self.other = not _alike(model.model_type, values["architectures"])
        self.tree = None if self.other else self._tree(model, core, [has_experts(one) for one in specs])
        self.set_layers(self.core_setting, core, core, core.virtual_pipeline_model_parallel_size)

    def _tree(self, model: Any, core: Any, experts: list[bool]) -> Any:
        known = layer_model(model.model_type, self.version, str(core.hidden_act))
        if known is None or not known.kinds or (core.mtp_num_layers and known.ahead is None):
            return None

        def tree(number: int) -> Tree:
            if number >= len(experts):
                ahead = known.ahead
                assert ahead is not None, "no layer that predicts"
                inside = tree(len(experts) - 1)
                return Tree(
                    ahead.operators, [(n, inside if n == "transformer_layer" else cell) for n, cell in ahead.cells]
                )
            return known.kinds[int(experts[number]) if len(known.kinds) > 1 else 0]

        return tree

    def _legacy_tree(self, kind: str, config: Any) -> Any:
        values = config.model.model_config
        experts = config.moe_config.expert_num or 0  # the model's own class fails for null
        flash, joined = values.get("use_flash_attention") is True, values.get("qkv_concat") is True
        variant = {(True, False): "", (True, True): "qkv_concat", (False, False): "no-flash"}.get((flash, joined), "?")
        arch = config.model.arch
        network = arch.get("type") if isinstance(arch, dict) else None  # the network that is built, if any
        named = network if network == _LEGACY.get(kind) else ""
        known = layer_model(str(named or ""), self.version, "" if kind == "ChatGLM2Config" else variant)
        if known is None or not known.kinds or experts > 1:
            return None
        return lambda _: known.kinds[0]

    def set_layers(self, kind: Any, model: Any, parallel: Any, chunks: Any) -> None:
        """Set the layers one by one, with patterns matched in ms-tune's trees."""
        self.read["built"] = _plain(vars(model))
        self.step = "layers"
        self.log.lines.clear()
        further = getattr(model, "mtp_num_layers", None) or 0
        stages = (getattr(model, "start_stage", 0), getattr(model, "stage_num", 0))
        reduced = self.reduced and kind is self.core_setting
        count = model.num_layers + further if reduced else model.num_layers
        arguments = (count, model.offset, parallel, chunks, *(() if reduced else stages))
        bare = reduced or self.tree is None
        setting = kind(*arguments)
        self.answer = {"layers": count, "known": not bare, "counts": setting.layer_list.tolist(), "mtp": further}
        self.answer["other"] = self.other
        asked = []
        for number in range(count):
            layer = Layer(Tree() if bare else self.tree(number))
            setting(layer, number)
            asked.append(effect_of(layer))
        self.answer["asked"] = asked
        if further:  # they have their own setting; the reduced class counts them with the others
            setting = kind(*arguments)
            for number in range(model.num_layers, model.num_layers + further):
                setting(Layer(Tree() if bare else self.tree(number)), number if reduced else model.num_layers - 1)
        self.answer["log"] = list(self.log.lines)
        self.step = "network"


def _alike(kind: str, network: Any) -> bool:
    """Return whether a network builds the layers of a model: it is the model's own, or both have latent attention."""
    network = network[0] if isinstance(network, (list, tuple)) else network
    owner = next((name for name, one in ARCHITECTURES.items() if one == network), None)
    return kind == owner or {kind, owner} == {"deepseek_v3", "telechat3_moe"}


def effect_of(layer: Layer, path: str = "") -> dict[str, list[str]]:
    """Return the calls on a layer and on each part of it."""
    found = {path: layer.asked} if layer.asked else {}
    for name, value in vars(layer).items():
        if isinstance(value, _Part) and value.asked:
            found[f"{path}.{name}"[not path :]] = value.asked
    for name, cell in layer._cells.items():
        found |= effect_of(cell, f"{path}.{name}"[not path :])
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else type(value).__name__


def answer(framework: Static, path: str) -> dict[str, Any]:
    """Return the failure of a config, or its effect on layers, and how it was read."""
    framework.read = {"config": None, "built": None, "legacy": None}
    found = _of_layers(framework, path)
    return {**found, **framework.read, "config": _plain(framework.read["config"])}


def _of_layers(framework: Static, path: str) -> dict[str, Any]:
    framework.answer = {}
    try:
        signal.setitimer(
            signal.ITIMER_VIRTUAL, 10 * SECONDS
        )  # a thousand layers with eight patterns take a second or two
        framework.start(path)
    except Hang:
        return {"step": framework.step, "error": "endless-loop", "text": ""}
    except Exception as error:  # noqa: BLE001 - whatever it is
        name = type(error).__name__
        name = f"{'regex' if type(error).__module__.startswith('regex') else 're'}.error" if name == "error" else name
        return {**framework.answer, "step": framework.step, "error": name, "text": str(error)}
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return framework.answer


def main() -> None:
    """Answer until there are no more lines."""
    wheel, version, place = sys.argv[1:]
    os.chdir(place)
    signal.signal(signal.SIGVTALRM, give_up)
    models = add_models(wheel)
    install(wheel)
    framework = Static(version, models)
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
