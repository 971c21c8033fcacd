"""Build single parts of a config by MindFormers' own classes of one release, as a separate process.

Run with the folder of an unpacked wheel first on the path. Each line of the input is ``[part, type, values]``: the
section, the class that it names, and its values. Each line of the output is null, or the exception, its text, and the
innermost place in MindFormers: ``[exception, text, file, line]``; the first line of all is the arguments of the classes
of each part. ``hyper_parallel``, which no index has, is replaced by objects that do nothing, and so is the data.
"""

# ruff: noqa: ANN401 - the framework has no types

from __future__ import annotations

import dataclasses
import inspect
import io
import json
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

_REQUIRED = {
    "lr_scheduler": {"type": "ConstantWarmUpLR"},
    "train_dataset": {"dataloader": {"type": "MindDataset"}},
    "model": {"model_type": "qwen3", "architectures": "Qwen3ForCausalLM"},
}
# Arguments that the trainer gives, in place of those of the config (`create_model_wrapper` and others of `base_trainer.py`).
_FROM_TRAINER = (
    "self", "params", "network", "optimizer", "model", "total_steps", "parallel_config", "lr_scheduler", "grouped_lr_scheduler",
    "calculate_per_token_loss", "global_norm_spike_threshold", "print_separate_loss", "use_skip_data_by_global_norm",
)  # fmt: skip
_FILLED = ("MFLossMonitor", "TrainingStateMonitor")  # callbacks whose arguments the trainer fills in
_DATA = [
    "seq_length", "split", "data_path", "eod", "pad", "eod_pad_length", "reset_position_ids",
    "reset_attention_mask", "eod_mask_loss", "create_attention_mask", "create_compressed_eod_mask", "seed",
    "num_dataset_builder_threads", "path_to_cache", "mmap_bin_files",
]  # fmt: skip
_CONFIG = {"seq_length": 64, "split": "1, 0, 0", "data_path": ["1", "data"], "create_compressed_eod_mask": False}
_LOADERS = {
    "BlendedMegatronDatasetDataLoader": ["datasets_type", "sizes", "phase", *(f"config.{one}" for one in _DATA)],
    "HFDataLoader": [
        "load",
        "process",
        "create_attention_mask",
        "create_compressed_eod_mask",
        "compressed_eod_mask_length",
        "shuffle",
    ],
}
KINDS = {"optimizer": "optimizer", "lr_schedule": "lr", "callbacks": "callback", "runner_wrapper": "wrapper"}
# Sections that the trainer passes to functions of its own.
_OF_TRAINER = {
    "train_dataset": [
        "num_parallel_workers", "python_multiprocessing", "prefetch_size", "numa_enable", "seed", "drop_remainder", "repeat",
        "token_monitor_config.top_n",
    ],
    "runner_config": ["epochs", "sink_mode", "sink_size", "gradient_accumulation_steps"],
    "checkpoint": ["save_max", "save_interleaved_steps", "reshard_worker_num", "no_load_optim", "load_path", "prefix"],
}  # fmt: skip
_SCALES = ("DynamicLossScaleUpdateCell", "FixedLossScaleUpdateCell", "AdaptiveLossScaleUpdateCell")


class Parts:
    """The classes of a release."""

    def __init__(self) -> None:
        mindformers: Any = import_module("mindformers")
        self.register: Any = import_module("mindformers.tools.register").MindFormerRegister
        mindspore: Any = import_module("mindspore")
        self.weight = mindspore.Parameter(mindspore.Tensor([1.0, 2.0]), name="weight")
        self.network = mindspore.nn.Dense(2, 2)
        self.loader: Any = import_module("mindformers.dataset.dataloader.blended_megatron_dataloader")
        self.hugging: Any = None
        with suppress(ImportError):  # in no release before 1.7
            self.hugging = import_module("mindformers.dataset.dataloader.hf_dataloader")
        vars(self.loader)["GeneratorDataset"] = _Nothing
        vars(self.loader)["compile_helpers"] = lambda: None
        self.handlers: Any = import_module("mindformers.dataset.handler")
        self.make_config: Any = import_module("mindformers.tools.register.config").MindFormerConfig
        self.trainer: Any = import_module("mindformers.trainer.base_trainer").BaseTrainer
        self.checks: Any = import_module("mindformers.trainer.utils")
        self.converts: Any = getattr(self.checks, "convert_checkpoint_config", None)
        self.templates: Any = import_module("mindformers.tools.register.template").CONFIG_NAME_TO_CLASS
        self.loader.BlendedMegatronDatasetBuilder.build = lambda _: [None] * 3
        self.dynamic: dict[str, Any] = {}
        if not mindformers.__version__.startswith("1."):
            import_module("mindformers.pynative.callback")
            config: Any = import_module("mindformers.pynative.config.config")
            self.dynamic = {one.name: one.type for one in dataclasses.fields(config.TrainConfig)}
            self.config = config
            self.utils: Any = import_module("mindformers.pynative.trainer.utils")
            muon: Any = import_module("mindformers.pynative.optimizer.muon")
            vars(muon)["core_context"] = SimpleNamespace(is_legacy_model=lambda: False)
            vars(muon)["get_rank"] = lambda: 0
            vars(muon)["_enable_muon_cube_math_type"] = lambda: None  # a switch of the operator on a device

    def arguments(self) -> dict[str, dict[str, list[str]]]:
        """Return the names of the arguments, by part and class; those that the trainer gives are left out."""
        found = {part: self._classes(part) for part in KINDS}
        found["train_dataset.data_loader"] = {name: names for name, names in _LOADERS.items() if name in self.loaders()}
        handlers = {name: kind for name, kind in vars(self.handlers).items() if name.endswith("Handler")}
        found["train_dataset.data_loader.handler"] = {
            name: self._given(kind.__init__)
            for name, kind in handlers.items()
            if inspect.isclass(kind) and not inspect.isabstract(kind) and "config" not in self._given(kind.__init__)
        }
        found["runner_wrapper.scale_sense"] = {
            name: self._given(self.register.get_cls("wrapper", name).__init__) for name in _SCALES
        }
        found["runner_wrapper"] = {
            name: names for name, names in found["runner_wrapper"].items() if name not in _SCALES
        }
        found |= {part: {"": names} for part, names in _OF_TRAINER.items() if part != "checkpoint" or self.converts}
        found["monitor_config"] = {"": self.templates["monitor_config"].keys()}
        if self.dynamic:
            chosen = ("AdamW", "Muon")
            kinds = {name: getattr(self.utils, name) for name in chosen}
            found["dynamic:optimizer"] = {name: self._given(kind.__init__) for name, kind in kinds.items()}
            found["dynamic:lr_scheduler"] = {
                name: [one for one in names if one != "total_steps"] for name, names in found["lr_schedule"].items()
            }
            found["dynamic:callbacks"] = found["callbacks"]
            simple = {name: kind for name, kind in self.dynamic.items() if dataclasses.is_dataclass(kind)}
            named = ("optimizer", "lr_scheduler", "model", "train_dataset", "monitor")
            fields = [one.name for one in dataclasses.fields(self.dynamic["train_dataset"]) if one.name != "dataloader"]
            found["dynamic:train_dataset"] = {"": fields}
            loader = "BlendedMegatronDatasetDataLoader"
            found["dynamic:train_dataset.dataloader"] = {loader: [*_LOADERS[loader], "column_names", "shuffle"]}
            found |= {
                f"dynamic:{part}": {"": [one.name for one in dataclasses.fields(kind)]}
                for part, kind in simple.items()
                if part not in named
            }
        return found

    def code(self, part: str, kind: str) -> Any:
        """Return the constructor of a registered class."""
        part = {"dynamic:lr_scheduler": "lr_schedule", "dynamic:callbacks": "callbacks"}.get(part, part)
        found = self.register.registry[KINDS[part]].get(kind.partition("|")[0]) if part in KINDS else None
        return getattr(inspect.unwrap(found.__init__), "__code__", None) if found else None

    def _classes(self, part: str) -> dict[str, list[str]]:
        """Return the classes of a part, each with all its names, and the names of their arguments."""
        names: dict[Any, list[str]] = {}
        for name, kind in self.register.registry.get(KINDS[part], {}).items():
            names.setdefault(kind, []).append(name)
        return {"|".join(some): self._names(part, some[0]) for some in names.values()}

    def loaders(self) -> list[str]:
        return [*self.register.registry.get("dataset_loader", {})]

    def _names(self, part: str, name: str) -> list[str]:
        kind = self.register.registry[KINDS[part]][name]
        if not kind.__module__.startswith("mindformers.") or name in _FILLED:
            return []
        choose = getattr(kind, "get_actual_adamw_cls", None)
        return self._given((choose(use_fused=False) if choose else kind).__init__)

    @staticmethod
    def _given(function: Any) -> list[str]:
        """Return the names that a config gives to a function."""
        function = inspect.unwrap(function)
        names = inspect.signature(function).parameters.values()
        return [
            one.name
            for one in names
            if one.name not in _FROM_TRAINER and one.kind.name.startswith(("POSITIONAL_OR", "KEYWORD"))
        ]

    def build(self, part: str, kind: str, values: dict[str, Any]) -> None:
        """Build a part as the trainer does, with the arguments that the trainer adds."""
        kind = kind.partition("|")[0]
        if part == "optimizer":
            make = import_module("mindformers.core.optim.build_optim").build_optim
            make({"type": kind, **values}, default_args={"params": [self.weight], "learning_rate": 1e-4})
        elif part == "lr_schedule":
            self.schedule({"type": kind, **values})
        elif part in KINDS:
            given: dict[str, Any] = {}
            if part == "runner_wrapper":
                optimizer = import_module("mindspore").nn.Adam([self.weight])
                given = {"network": self.network, "optimizer": optimizer}
            self.register.get_cls(KINDS[part], kind)(**{**given, **values})
        elif part == "train_dataset.data_loader":
            self.load(kind, values)
        elif part.startswith("dynamic:"):
            self.dynamic_part(part.removeprefix("dynamic:"), kind, values)
        else:
            self.part_of_trainer(part, kind, values)

    def schedule(self, values: dict[str, Any]) -> None:
        """Build a schedule as the trainer does, which sets the steps of the run first."""
        schedule = self.make_config(**values)
        config = self.make_config(runner_config={"sink_mode": True, "epochs": 100, "sink_size": 1})
        config.lr_schedule = schedule
        trainer, make = (
            SimpleNamespace(config=config, get_train_data_size=lambda: 100),
            self.trainer.create_lr_scheduler,
        )
        make(trainer, *([schedule] if "lr_config" in inspect.signature(make).parameters else []))

    def part_of_trainer(self, part: str, kind: str, values: dict[str, Any]) -> None:
        """Pass a section of the static graph to the code that checks it."""
        if part == "train_dataset.data_loader.handler":
            getattr(self.handlers, kind)(**values)
        elif part == "runner_wrapper.scale_sense":
            import_module("mindformers.wrapper.build_wrapper").build_wrapper(self.make_config(type=kind, **values))
        elif part == "monitor_config":
            kind_of_monitor = self.register.get_cls("callback", "TrainingStateMonitor")
            config = self.make_config(**values)
            kind_of_monitor(1, config=config, step_interval=values.get("step_interval", 1))
        elif part == "train_dataset":
            mindspore: Any = import_module("mindspore")
            source = mindspore.dataset.NumpySlicesDataset({"input_ids": [[1, 2], [3, 4]]}, shuffle=False)
            default = {
                "seed": 0,
                "prefetch_size": 1,
                "numa_enable": False,
                "num_parallel_workers": 1,
                "drop_remainder": True,
                "batch_size": 1,
            }
            config = self.make_config(**{**default, "token_monitor": True, **values}, input_columns=["input_ids"])
            config.data_loader = source
            self.register.get_cls("dataset", "CausalLanguageModelDataset")(dataset_config=config)
        elif part == "checkpoint":
            self.converts(self.make_config(output_dir="output", use_legacy_format=True, checkpoint=values))
        else:
            run = {"epochs": 1, "sink_mode": True, "sink_size": 1, "gradient_accumulation_steps": 1, **values}
            config = self.make_config(runner_config=run, model={"model_config": {}})
            trainer = SimpleNamespace(config=config, get_pipeline_stages=lambda: 1)
            self.trainer._check_grad_accumulation_steps(trainer)
            self.checks.check_runner_config(config, SimpleNamespace(get_dataset_size=lambda: 100))

    def load(self, kind: str, values: dict[str, Any]) -> None:
        """Start a data loader, as far as it checks its settings."""
        if kind == "HFDataLoader":
            given = self.hugging.process_legacy_args(**values)
            self.hugging.HFDataLoader._build_config(**given)
            return
        builder = self.loader.MegatronDatasetBuilder(values.pop("datasets_type", "GPTDataset"), values.pop("config"))
        builder.builder(values.pop("sizes", [1, 0, 0]), ["input_ids"], **values)

    def dynamic_part(self, part: str, kind: str, values: dict[str, Any]) -> None:
        """Build a part of the dynamic graph: the section by its dataclass, then the class that it names."""
        given = {"type": kind, **values} if kind else values
        if part == "callbacks":
            section: Any = self.config.CallbackConfig.from_dict(given)
            self.utils._build_callback(section)
            return
        data = {
            "type": "BlendedMegatronDatasetDataLoader",
            "datasets_type": "GPTDataset",
            "sizes": [1, 0, 0],
            "config": _CONFIG,
        }
        one_worker = {"num_parallel_workers": 1}
        whole = {
            "train_dataset": {**one_worker, "dataloader": data, **given},
            "train_dataset.dataloader": {**one_worker, "dataloader": {**data, **given}},
        }
        section = self.config.TrainConfig.from_dict({**_REQUIRED, part.partition(".")[0]: whole.get(part, given)})
        if part == "optimizer":
            self.utils.get_param_groups = lambda **_: [{"params": [self.weight], "weight_decay": 0.0}]
            self.utils._build_optimizer(section.optimizer, [_Latent()], 1e-4)
        elif part == "lr_scheduler":
            self.utils._build_lr_scheduler(section.lr_scheduler, 100)
        elif part in ("train_dataset", "train_dataset.dataloader"):
            make, parallelism = self.utils._build_dataset, SimpleNamespace(data_parallel=1)
            given = {
                "config": section.train_dataset,
                "parallelism": parallelism,
                "local_batch_size": 1,
                "global_batch_size": 1,
            }
            make(**{name: value for name, value in given.items() if name in inspect.signature(make).parameters})


class _Latent:
    """A network with latent attention, which Muon asks for."""

    @staticmethod
    def get_gpt_transformer_config() -> Any:
        return SimpleNamespace(multi_latent_attention=True)

    @staticmethod
    def make_model_muon_fns() -> tuple[None, None]:
        return None, None


class _Nothing:
    """A data set."""

    def batch(self, **_: object) -> _Nothing:
        return self

    def __init__(self, *_: object, **__: object) -> None:
        pass


def cause_of(error: BaseException) -> BaseException:
    """Return the first exception: the registry raises it again, with the class's name."""
    while error.__context__ is not None and str(error.__context__) in str(error):
        error = error.__context__
    return error


def place_of(error: BaseException, code: Any) -> tuple[str, int]:
    """Return the innermost place in MindFormers where an exception was raised; for a decorator, the decorated function."""
    for frame in reversed(traceback.extract_tb(cause_of(error).__traceback__)):
        if "/mindformers/" in frame.filename and "/tools/register/" not in frame.filename:
            return f"mindformers/{frame.filename.rpartition('/mindformers/')[2]}", frame.lineno or 0
    return (f"mindformers/{code.co_filename.rpartition('/mindformers/')[2]}", code.co_firstlineno) if code else ("", 0)


def answer(parts: Parts, question: list[Any]) -> list[Any] | None:
    """Return the refusal of a part; None if it is built."""
    try:
        parts.build(*question)
    except Exception as error:  # noqa: BLE001 - whatever stops
        return [type(error).__name__, str(cause_of(error))[:300], *place_of(error, parts.code(*question[:2]))]
    return None


def main() -> None:
    """Answer each line."""
    trees: Any = import_module("make_trees")  # the folder of this file is on the path
    sys.meta_path.insert(0, trees._Finder())
    parts = Parts()
    sys.stdout.write(f"\n@{json.dumps(parts.arguments())}\n")
    for line in sys.stdin:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            found = answer(parts, json.loads(line))
        sys.stdout.write(f"\n@{json.dumps(found)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
