"""Tells which framework a config is written for, by the keys that only one of them knows.

- MindFormers, static graph: ``mindformers/tools/register/template.py`` (1.7 to 2.1).
- MindFormers, dynamic graph: ``mindformers/pynative/config/config.py`` (2.0, 2.1).
- MindSpeed-Core-MS r0.1.0: the ``config_name`` of the classes in ``mindspeed_ms/core/config.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.frameworks.dialect import Dialect

if TYPE_CHECKING:
    from ms_tune.config.source import KeyPath


@dataclass(frozen=True, slots=True)
class Recognition:
    """What a config looks like.

    Args:
        dialect: The dialect, or None: no training config, or as much of one dialect as of another.
        confident: Whether keys that only this dialect has were found, and none of another.
        evidence: The key paths that speak for the dialect (for any, if there is no dialect).
    """

    dialect: Dialect | None
    confident: bool
    evidence: tuple[KeyPath, ...]


# Key paths that only this dialect has.
_STRONG: dict[Dialect, tuple[KeyPath, ...]] = {
    Dialect.MINDFORMERS: (
        ("runner_config",),
        ("runner_wrapper",),
        ("trainer",),
        ("lr_schedule",),
        ("train_dataset_task",),
        ("swap_config",),
        ("use_parallel",),
        ("use_legacy",),
        ("micro_batch_interleave_num",),
        ("model", "model_config"),
        ("parallel_config", "data_parallel"),
        ("parallel_config", "model_parallel"),
        ("parallel_config", "pipeline_stage"),
        ("parallel_config", "micro_batch_num"),
        ("parallel_config", "expert_parallel"),
        ("parallel_config", "context_parallel"),
    ),
    Dialect.MINDFORMERS_PYNATIVE: (
        ("parallelism",),
        ("training",),
        ("lr_scheduler",),
        ("recompute_comm",),
        ("train_dataset", "dataloader"),
    ),
    Dialect.MINDSPEED_MS: (
        ("training_config",),
        ("model_config",),
        ("dataset_config",),
        ("optimizer_config",),
        ("parallel_config", "tensor_model_parallel_size"),
        ("parallel_config", "pipeline_model_parallel_size"),
        ("parallel_config", "virtual_pipeline_model_parallel_size"),
        ("parallel_config", "expert_model_parallel_size"),
        ("parallel_config", "context_parallel_size"),
        ("parallel_config", "sequence_parallel"),
        ("parallel_config", "num_layer_list"),
    ),
}

# Key paths that speak for a dialect and may turn up elsewhere.
_WEAK: dict[Dialect, tuple[KeyPath, ...]] = {
    Dialect.MINDFORMERS: (
        ("recompute_config",),
        ("parallel",),
        ("callbacks",),
        ("context", "mode"),
        ("train_dataset", "data_loader"),
    ),
    Dialect.MINDFORMERS_PYNATIVE: (("recompute",), ("swap",), ("profiler",), ("checkpoint",)),
    Dialect.MINDSPEED_MS: (
        ("parallel_config", "recompute_config"),
        ("parallel_config", "deterministic_mode"),
        # The form of the library's command line, which `init_configs_from_yaml` does not read.
        ("model_parallel", "tensor_model_parallel_size"),
        ("model_parallel", "pipeline_model_parallel_size"),
        ("language_model", "num_layers"),
    ),
}


def recognise(data: object) -> Recognition:
    """The dialect of a config's values."""
    strong = {dialect: _present(data, paths) for dialect, paths in _STRONG.items()}
    weak = {dialect: _present(data, paths) for dialect, paths in _WEAK.items()}
    score = {dialect: (len(strong[dialect]), len(weak[dialect])) for dialect in Dialect}
    ranked = sorted(Dialect, key=lambda dialect: score[dialect], reverse=True)
    best, second = ranked[0], ranked[1]
    if score[best] == score[second]:
        everything = tuple(path for dialect in Dialect for path in strong[dialect] + weak[dialect])
        return Recognition(None, confident=False, evidence=everything)
    confident = bool(strong[best]) and not strong[second]
    return Recognition(best, confident, strong[best] + weak[best])


def _present(data: object, paths: tuple[KeyPath, ...]) -> tuple[KeyPath, ...]:
    return tuple(path for path in paths if _has(data, path))


def _has(data: object, path: KeyPath) -> bool:
    for item in path:
        if not isinstance(data, dict) or item not in data:
            return False
        data = data[item]
    return True
