"""MindFormers static-graph configs, run with the real MindFormers on a synthetic data set."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ms_tune.config.dialects.mindformers import read_recompute, swap_is_dropped
from ms_tune.config.dialects.recognise import Dialect
from ms_tune.dryrun.job import MindFormersJob
from ms_tune.dryrun.request import STEPS, Change, DryrunRequest, PreparedRun
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError, UsageError
from ms_tune.layers import normalize
from ms_tune.texts import msg
from ms_tune.units import parse_size

if TYPE_CHECKING:
    from ms_tune.config.source import SourceFile
    from ms_tune.layers import RecomputePlan
    from ms_tune.texts import Message

_CONFIG_FILE = "config.yaml"
_COLUMNS = ("input_ids", "labels", "loss_mask", "position_ids")
_SECTIONS = (
    *("model", "model.model_config", "parallel_config", "parallel", "parallel.pipeline_config", "context"),
    *("context.ascend_config", "runner_config", "recompute_config", "swap_config", "train_dataset"),
)
_LAYER_KEYS = ("num_hidden_layers", "num_layers")
# With fewer threads MindSpore cannot build graphs that contain conditions ("Can not build a sub graph which contains
# ConditionSwitch"): by default it takes a share of the machine's cores, which is too small on a laptop.
_DISPATCH_THREADS = 8


class _Editor:
    """A copy of the config that remembers what was changed."""

    def __init__(self, source: SourceFile) -> None:
        self.data: dict[str, Any] = copy.deepcopy(source.data)
        self.changes: list[Change] = []
        self._path = source.path
        for section in _SECTIONS:
            if not isinstance(self.get(section, {}), dict):
                raise ConfigError(msg("model.section-not-a-mapping", key=section), path=source.path)

    def get(self, path: str, default: object = None) -> Any:  # noqa: ANN401 - YAML values have any type
        node: Any = self.data
        for part in path.split("."):
            if not isinstance(node, dict) or part not in node:
                return default
            node = node[part]
        return default if node is None else node

    def set(self, path: str, value: object) -> None:
        *parents, last = path.split(".")
        node = self.data
        for part in parents:
            if node.get(part) is None:
                node[part] = {}
            node = node[part]
        before = node.get(last)
        if before != value or last not in node:
            node[last] = value
            self.changes.append(Change(path, before, value))

    def remove(self, path: str) -> None:
        *parents, last = path.split(".")
        node = self.data
        for part in parents:
            node = node.get(part) or {}
        if last in node:
            self.changes.append(Change(path, node.pop(last), None))

    def count(self, path: str, default: int) -> int:
        """A whole number above zero."""
        value = self.get(path, default)
        if type(value) is not int or value <= 0:
            raise ConfigError(msg("model.not-positive", key=path, value=repr(value)), path=self._path)
        return value

    def names(self, path: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """A list of names."""
        value = self.get(path, list(default))
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(msg("model.not-names", key=path, value=repr(value)), path=self._path)
        return tuple(value)


def prepare(source: SourceFile, name: str, request: DryrunRequest, devices: int | None) -> PreparedRun:
    """A run of the config's own model in MindFormers, with so many layers in every pipeline stage."""
    editor = _Editor(source)
    if editor.get("run_mode", "train") not in ("train", "finetune"):
        raise UnsupportedError(msg("dryrun.run-mode", mode=editor.get("run_mode")), msg("dryrun.run-mode.hint"))
    stages, world_size = _sizes(editor, devices)
    if request.stage >= stages:
        raise UsageError(msg("dryrun.stage", stage=request.stage, stages=stages))
    columns = _columns(editor)
    plan = _plan_as_written(source)
    warnings = _check_plan(plan, source, shrunk=request.layers is not None)
    layers = _shrink(editor, source, request.layers, stages)
    if request.layers is None and stages > 1 and plan is not None and plan.placement is not None:
        layers = sum(cell.stage == request.stage for cell in plan.placement.cells)
    job = MindFormersJob(
        config_file=_CONFIG_FILE,
        columns=columns,
        batches=STEPS,
        batch_size=_batch_size(editor),
        seq_length=editor.count("model.model_config.seq_length", 4096),
        threads=max(_DISPATCH_THREADS, os.cpu_count() or 1),
    )
    limit = _memory_limit(editor, source)
    _take_out_the_surroundings(editor, source)
    return PreparedRun(
        job=job,
        dialect=Dialect.MINDFORMERS,
        config_name=name,
        packaged=request.config is None,
        config_text=source.text,
        files={_CONFIG_FILE: yaml.safe_dump(editor.data, sort_keys=False, allow_unicode=True)},
        world_size=world_size,
        rank=request.stage * (world_size // stages),
        stage=request.stage,
        stages=stages,
        layers=layers,
        shrunk=request.layers is not None,
        model=msg("dryrun.model.mindformers"),
        max_device_memory=limit,
        changes=tuple(editor.changes),
        not_included=(msg("dryrun.not-included.other-stages"),) if stages > 1 else (),
        warnings=warnings,
    )


def _plan_as_written(source: SourceFile) -> RecomputePlan | None:
    """Where MindFormers puts the config's layers and what they recompute; None where ms-tune cannot tell."""
    try:
        return normalize(read_recompute(source))
    except MsTuneError:
        return None


def _check_plan(plan: RecomputePlan | None, source: SourceFile, *, shrunk: bool) -> tuple[Message, ...]:
    """What a shrunk run would hide: that MindFormers stops at the layer settings of the config as it is written."""
    if plan is None or plan.failure is None:
        return ()
    error = f"{plan.failure.exception}: {plan.failure.text}"
    if shrunk:
        return (msg("dryrun.warning.refused", error=error),)
    raise ConfigError(msg("dryrun.refused", error=error), msg("dryrun.refused.hint"), path=source.path)


def _sizes(editor: _Editor, devices: int | None) -> tuple[int, int]:
    """Pipeline stages, and ranks of the whole job."""
    stages = editor.count("parallel_config.pipeline_stage", 1)
    keys = ("data_parallel", "model_parallel", "context_parallel")
    world_size = stages
    for key in keys:
        world_size *= editor.count(f"parallel_config.{key}", 1)
    if not editor.get("use_parallel", default=False):
        stages = world_size = 1
    if devices is not None and devices != world_size:
        raise UsageError(msg("dryrun.devices-fixed", devices=devices, size=world_size))
    return stages, world_size


def _shrink(editor: _Editor, source: SourceFile, layers: int | None, stages: int) -> int:
    """Give every stage so many layers; returns the layers of a stage."""
    path = next((f"model.model_config.{key}" for key in _LAYER_KEYS if editor.get(f"model.model_config.{key}")), None)
    if path is None:
        raise ConfigError(msg("dryrun.no-layer-count"), msg("dryrun.no-layer-count.hint"), path=source.path)
    full = editor.count(path, 1)
    if layers is None:
        return full // stages
    if editor.get("swap_config.swap") is True and not swap_is_dropped(source):
        raise UnsupportedError(msg("dryrun.swap"), msg("dryrun.swap.hint"))
    editor.set(path, layers * stages)
    chunks = editor.count("model.model_config.pp_interleave_num", 1)
    if editor.get("parallel.pipeline_config.pipeline_interleave") and layers % chunks:
        raise UsageError(msg("dryrun.layers-interleave", layers=layers, chunks=chunks))
    if editor.get("model.model_config.offset"):
        editor.set("model.model_config.offset", 0)
    for key in editor.get("recompute_config", {}):
        value = editor.get(f"recompute_config.{key}")
        editor.set(f"recompute_config.{key}", _clamped(value, layers, layers // chunks))
    return layers


def _clamped(value: object, stage: int, chunk: int) -> object:
    """A recompute setting with counts no larger than the layers of a stage or, in nested lists, of a chunk of it.

    MindFormers clamps most of them itself, but fails on nested lists that need it (training_graph/transformer/utils.py).
    """
    if isinstance(value, dict):
        return {key: _clamped(item, stage, chunk) for key, item in value.items()}
    if isinstance(value, list):
        nested = [isinstance(item, list) for item in value]
        return [_clamped(item, chunk if is_list else stage, chunk) for item, is_list in zip(value, nested, strict=True)]
    if isinstance(value, int) and not isinstance(value, bool):
        return min(value, stage)
    return value


def _columns(editor: _Editor) -> tuple[str, ...]:
    names = editor.names("train_dataset.input_columns", ("input_ids", "labels"))
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown:
        raise UnsupportedError(msg("dryrun.columns", columns=", ".join(unknown), known=", ".join(_COLUMNS)))
    return names


def _batch_size(editor: _Editor) -> int:
    """Samples that one rank reads for one step (mindformers/trainer/utils.py: the data set holds all micro-batches)."""
    size = editor.count("runner_config.batch_size", 1)
    if editor.get("use_parallel", default=False):
        size *= editor.count("micro_batch_interleave_num", 1)
        if editor.get("parallel_config.pipeline_stage", 1) > 1:
            size *= editor.count("parallel_config.micro_batch_num", 1)
        if editor.get("parallel.full_batch", default=False):
            size *= editor.count("parallel_config.data_parallel", 1)
    return size


def _memory_limit(editor: _Editor, source: SourceFile) -> int | None:
    text = editor.get("context.max_device_memory")
    if text is None:
        return None
    try:
        return parse_size(str(text))
    except ValueError:
        raise ConfigError(
            msg("dryrun.bad-size", key="context.max_device_memory", value=text), path=source.path
        ) from None


def _take_out_the_surroundings(editor: _Editor, source: SourceFile) -> None:
    """Data, checkpoints, profiling and callbacks that write or wait: none of them takes device memory in a step."""
    for path in ("train_dataset", "train_dataset_task", "eval_dataset", "eval_dataset_task", "monitor_config"):
        editor.remove(path)
    editor.set("callbacks", [])
    editor.set("runner_config.epochs", 1)
    for path, value in {"load_checkpoint": "", "resume_training": False, "profile": False}.items():
        if editor.get(path):
            editor.set(path, value)
    for path in ("auto_trans_ckpt", "only_save_strategy", "auto_tune", "do_eval"):
        if editor.get(path):
            editor.set(path, value=False)
    if editor.get("output_dir"):
        editor.set("output_dir", "./output")
    json_path = "context.ascend_config.parallel_speed_up_json_path"
    named = editor.get(json_path)
    if named:
        found = [folder / str(named) for folder in (Path.cwd(), source.path.resolve().parent)]
        existing = next((path for path in found if path.is_file()), None)
        if existing is None:
            editor.remove(json_path)
        else:
            editor.set(json_path, str(existing))
