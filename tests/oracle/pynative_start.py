"""Run MindFormers' dynamic-graph trainer from the config up to the first step, from the source in its wheels.

The functions that compute batch sizes and choose data loader and optimizer are extracted from the source with :mod:`ast`;
loaders, optimizers and MindSpore's data sets are stand-ins that accept anything.
"""

from __future__ import annotations

import ast
import math
import zipfile
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Optional, Union

from tests.oracle.pynative import wheel

_UTILS = "mindformers/pynative/trainer/utils.py"
_TRAINER = "mindformers/pynative/trainer/trainer.py"
_GROWING = "mindformers/pynative/trainer/dynamic_batch.py"
_CONTEXT = "mindformers/pynative/distributed/context_parallel.py"
_BALANCE = "mindformers/dataset/dataloader/balance_scheduler.py"


class _Anything:
    """A replacement of loaders, data sets and optimizers."""

    def __init__(self, *_values: object, **_named: object) -> None: ...

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever is asked of it
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_values, **_named: []


class Start:
    """The trainer from its start to the first step on one card.

    Args:
        version: The MindFormers release.
    """

    def __init__(self, version: str) -> None:
        with zipfile.ZipFile(wheel(version)) as archive:
            self._names: dict[str, Any] = {
                "Union": Union,
                "Optional": Optional,
                "math": math,
                "LearningRateSchedule": Any,
                "logger": _Anything(),
                "partial": lambda *_values, **_named: None,
                "get_world_size": lambda: 1,
                "get_rank": lambda: 0,
                "get_param_groups": lambda **_named: [],
                "_get_mindrecord_files": lambda files: files,
                "ms_dataset": SimpleNamespace(config=_Anything(), MindDataset=_Anything),
                **dict.fromkeys(
                    ("BlendedMegatronDatasetDataLoader", "HFDataLoader", "OrderedIndexDataLoader"), _Anything
                ),
                **dict.fromkeys(("AdamW", "Muon", "BalanceSpec"), _Anything),
            }
            present = set(archive.namelist())
            wanted = ("_build_dataset", "_build_optimizer", "validate_balance_config")
            self._take(archive.read(_UTILS).decode(), wanted)
            self._take(archive.read(_TRAINER).decode(), ("_compute_data_parallel_size", "_validate_pp_inference"))
            self._take(archive.read(_CONTEXT).decode(), ("_validate_cp_method",))
            if _GROWING in present:
                self._take(archive.read(_GROWING).decode(), ("BatchSizeScheduler", "build_dynamic_scheduler"))
            if _BALANCE in present:
                self._take(archive.read(_BALANCE).decode(), ("assert_balance_supported", "BALANCE_SUPPORTED_LOADERS"))

    def _take(self, source: str, wanted: Iterable[str]) -> None:
        """Define the functions (also methods) and constants with these names."""
        found: list[ast.stmt] = []
        for node in ast.walk(ast.parse(source)):
            names = (
                [target.id for target in node.targets if isinstance(target, ast.Name)]
                if isinstance(node, ast.Assign)
                else []
            )
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names = [node.name]
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Assign)) and set(names) & set(wanted):
                found.append(node)
        exec(compile(ast.Module(found, []), "wheel", "exec", dont_inherit=True), self._names)  # noqa: S102 - the point of this module

    def go(self, config: Any) -> None:  # noqa: ANN401 - the framework's own object
        """Run batch sizes, data and optimizer in the trainer's order.

        Args:
            config: A ``TrainConfig``.
        """
        batch = config.training.global_batch_size
        trainer = SimpleNamespace(config=config, world_size=1, global_batch_size=batch, is_inference=False)
        trainer.dynamic_batch_enabled = getattr(config.training, "rampup_batch_size", None) is not None
        self._names["_compute_data_parallel_size"](trainer)
        build, data, parallelism = self._names["_build_dataset"], config.train_dataset, config.parallelism
        local = config.training.local_batch_size
        if "local_batch_size" in build.__code__.co_varnames[: build.__code__.co_argcount]:
            build(data, parallelism, local)
        else:
            build(data, global_batch_size=batch, parallelism=parallelism, num_grad_acc=trainer.num_accumulation_steps)
        self._names["_build_optimizer"](config.optimizer, [_Anything()], 1e-5)

    def predict(self, chunks: int, *, overlap: bool, swap: bool) -> None:
        """Run the checks of a pipeline before prediction; from 2.1 on."""
        parallelism = SimpleNamespace(pipeline_parallel_interleave_num=chunks, pipeline_parallel_overlap_b_f=overlap)
        config = SimpleNamespace(parallelism=parallelism, swap=SimpleNamespace(enable=swap))
        self._names["_validate_pp_inference"](SimpleNamespace(config=config))

    def context(self, method: str, ways: int, degree: int | None) -> None:
        """Run the checks of context parallelism over several ranks."""
        self._names["_validate_cp_method"](method, ways, degree)
