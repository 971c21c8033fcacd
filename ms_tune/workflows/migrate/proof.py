"""Prove a migration: read the new file by the rules of its dialect, and compare both sides."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ms_tune.diagnostics import Severity
from ms_tune.dialects import LayerPlan, LayerSpec
from ms_tune.dialects.megatron.write import without_idle
from ms_tune.dryrun.prepare import load_config, prepare_run
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.dryrun.shrink.mindformers_data import OF_THE_YAML
from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.errors import MsTuneError, UnsupportedError
from ms_tune.facts.query import installed_version
from ms_tune.job import Job
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.normalize.script import normalize_script
from ms_tune.source.yaml import SourceFile, parse_source, source_of, yaml_text
from ms_tune.text import msg
from ms_tune.units import gib
from ms_tune.workflows.migrate.draft import MigrationDraft
from ms_tune.workflows.migrate.from_mindformers import global_batch
from ms_tune.workflows.migrate.model import differing_fields, is_served
from ms_tune.workflows.migrate.result import Fate, MigrationVerdict

_SECONDS = 300
_PROGRAM = "import sys; from mindformers.pynative.config import config; config.TrainConfig.load_from_yaml(sys.argv[1]); print('loaded')"
_NEW = Path("migrated.yaml")
_SHOWN = 3
_OF_LAYERS = ("recompute_config", "swap_config")
_MOMENTS = 8  # bytes per parameter for Adam's two float32 moments
_MASTER = 12  # also with the float32 weight


def prove(draft: MigrationDraft, text: str) -> tuple[MigrationVerdict, ...]:
    """Return every part of the proof in display order; for other frameworks' models, only the parts that apply to any model."""
    source = parse_source(text, _NEW)
    parts = [_prove_loading(text, draft.target), _prove_rules(source, draft.target)]
    if draft.dialect is not Dialect.MINDFORMERS:
        parts.append(_prove_layers(draft, source))
        unknown, reason = ["weights"], "other-network"
    elif not is_served(draft):
        parts.append(_prove_batch(draft, source))
        unknown, reason = ["layers", "fields", "weights"], "model-unknown"
    else:
        parts += [_prove_layers(draft, source), _prove_batch(draft, source), _prove_fields(draft)]
        return (*parts, _prove_weights(draft, source))
    return (*parts, *(_verdict(name, reason, holds=None) for name in unknown))


def _verdict(name: str, detail: str, /, *, holds: bool | None, **params: object) -> MigrationVerdict:
    return MigrationVerdict(name, holds, msg(f"migrate.proof.{detail}", **params))


def _prove_loading(text: str, release: str) -> MigrationVerdict:
    # Load the file with ``TrainConfig`` (``pynative/config/config.py``) of an installed release, in a separate process.
    if not f"{installed_version('mindformers') or ''}.".startswith(f"{release}."):
        return _verdict("loads", "loads-not", holds=None, release=release)
    with tempfile.TemporaryDirectory(prefix="ms-tune-migrate-") as folder:
        file = Path(folder) / "migrated.yaml"
        file.write_text(text, encoding="utf-8")
        command = [sys.executable, "-c", _PROGRAM, str(file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, cwd=folder, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return _verdict("loads", "loads-refused", holds=False, text=type(error).__name__)
    if done.returncode == 0 and done.stdout.strip().endswith("loaded"):
        return _verdict("loads", "loads", holds=True)
    lines = done.stderr.strip().splitlines()
    return _verdict("loads", "loads-refused", holds=False, text=lines[-1] if lines else done.returncode)


def _prove_rules(source: SourceFile, release: str) -> MigrationVerdict:
    dialect = Dialect.MINDFORMERS_PYNATIVE
    found = lint(source, dialect, built_in(dialect), release)
    errors = [one for one in found if one.severity is Severity.ERROR]
    if errors:
        return _verdict("lints", "lints-errors", holds=False, count=len(errors), first=errors[0].message)
    return _verdict("lints", "lints", holds=True, warnings=sum(one.severity is Severity.WARNING for one in found))


def _plan_source(draft: MigrationDraft) -> LayerPlan:
    if draft.script is None:
        return draft.job.plan
    (program, *_) = normalize_script(draft.script)
    if program.plan is None:
        raise UnsupportedError(msg("migrate.why.not-evaluable"))
    return without_idle(program.plan)


def _prove_layers(draft: MigrationDraft, source: SourceFile) -> MigrationVerdict:
    # Compare placement and recomputation layer by layer; operators and swap are proved during translation.
    try:
        old = _plan_source(draft)
        new = Job(source, dialect=Dialect.MINDFORMERS_PYNATIVE, version=draft.target).plan
    except MsTuneError as error:
        return _verdict("layers", "layers-unread", holds=False, text=error.message)
    failure = old.failure or new.failure
    if failure is not None:
        return _verdict("layers", "layers-unread", holds=False, text=f"{failure.exception}: {failure.text}")
    for note in draft.notes.get(("recompute",), ()):
        return MigrationVerdict("layers", holds=False, detail=note)
    acts = {layer.layer: _act(layer) for layer in new.layers}
    for layer in old.layers:
        act = acts.get(layer.layer)
        if act != _act(layer):
            return _verdict("layers", "layers-at", holds=False, layer=layer.layer, old=_act(layer), new=act or "-")
    keys = [
        one.name
        for one in draft.entries()
        if one.fate is Fate.ASK and (one.path[0] in _OF_LAYERS or one.to[:1] == ("swap",))
    ]
    if keys:
        return _verdict("layers", "layers-asked", holds=None, keys=", ".join(keys[:_SHOWN]))
    stages = len({layer.stage for layer in old.layers})
    return _verdict("layers", "layers", holds=True, layers=len(old.layers), stages=stages)


def _act(layer: LayerSpec) -> tuple[object, ...]:
    # Return a layer's position, and what is recomputed or swapped.
    full = layer.recompute is RecomputeMode.FULL
    return layer.stage, layer.chunk, full, bool(layer.select_patterns) and not full, bool(layer.swap)


def _prove_batch(draft: MigrationDraft, source: SourceFile) -> MigrationVerdict:
    old, new = global_batch(draft), source.get(("training", "global_batch_size"))
    length, other = draft.model.number("seq_length"), draft.values.get(("model", "seq_length"))
    other = length if other is None and any(one.to == ("model", "seq_length") for one in draft.added) else other
    if old is None or length is None:
        return _verdict("batch", "batch-unknown", holds=None)
    batch, other = old[1], source.get(("model", "seq_length"), length) if other is None else other
    if new == batch and other == length:
        return _verdict("batch", "batch", holds=True, batch=batch, tokens=batch * length)
    figures = {"old": batch, "old_tokens": batch * length, "new": new, "new_tokens": f"{new} x {other}"}
    return _verdict("batch", "batch-differs", holds=False, **figures)


def _prove_fields(draft: MigrationDraft) -> MigrationVerdict:
    found = differing_fields(draft)
    if not found:
        return _verdict("fields", "fields", holds=True, count=len(draft.model.facts.fields))
    shown = [f"{name}: {old} -> {new}" for name, (old, new) in sorted(found.items())]
    return _verdict("fields", "fields-differ", holds=False, count=len(found), fields="; ".join(shown[:_SHOWN]))


def _prove_weights(draft: MigrationDraft, source: SourceFile) -> MigrationVerdict:
    # Compare the parameters of every stage, without sharding: theory for one rank that has all of them.
    try:
        old = _stage_theories(_with_values(draft.source, _STATIC_ALONE), Dialect.MINDFORMERS)
        new = _stage_theories(_with_values(source, _DYNAMIC_ALONE), Dialect.MINDFORMERS_PYNATIVE)
    except MsTuneError as error:
        return _verdict("weights", "weights-unknown", holds=None, text=error.message)
    if not all(old) or not all(new):
        return _verdict("weights", "weights-unknown", holds=None, text=msg("migrate.proof.no-theory"))
    total = copies = 0
    for stage, (one, other) in enumerate(zip(old, new, strict=True)):
        here, (narrow, wide) = one["optimizer_state"] // _MOMENTS, count_parameters(other)
        if here != narrow + wide:
            return _verdict("weights", "weights-differ", holds=False, stage=stage, old=here, new=narrow + wide)
        total += here
        copies += 2 * narrow
    figures = {"memory": gib(_MASTER * total), "copies": gib(copies)}
    return _verdict("weights", "weights", holds=True, parameters=f"{total:,}", stages=len(old), **figures)


def count_parameters(theory: Mapping[str, int]) -> tuple[int, int]:
    """Return the numbers of two-byte and of float32 parameters, from the sizes of weights and optimizer state.

    ``persistent_bytes``: a two-byte parameter uses 2 bytes and 12 of state (a float32 copy, two moments), a float32 one 4 and 8.
    """
    weights, state = theory["weights"], theory["optimizer_state"]
    narrow = (state - 2 * weights) // 8
    return narrow, (weights - 2 * narrow) // 4


# Settings with which one rank of every stage has all of it: only layers are split.
_STATIC_ALONE: dict[tuple[str, ...], Any] = {
    **{
        ("parallel_config", name): 1
        for name in ("data_parallel", "model_parallel", "context_parallel", "expert_parallel")
    },
    ("parallel_config", "use_seq_parallel"): False,
    ("parallel", "enable_parallel_optimizer"): False,
    ("optimizer", "swap"): False,
}
_DYNAMIC_ALONE: dict[tuple[str, ...], Any] = {
    **{("parallelism", name): 1 for name in ("tensor_parallel", "context_parallel", "expert_parallel")},
    ("parallelism", "data_parallel_shard"): 1,
    ("parallelism", "sequence_parallel"): False,
    ("training", "local_batch_size"): 1,
    ("training", "global_batch_size"): 64,
}


def _with_values(source: SourceFile, values: Mapping[tuple[str, ...], Any]) -> SourceFile:
    data = dict(source.data)
    for (section, name), value in values.items():
        if isinstance(data.get(section), dict) or section == "parallelism":
            data[section] = {**data.get(section, {}), name: value}
    return source_of(with_folder(data, source.model_config) if source.model_config else data, source.path)


def with_folder(data: dict[Any, Any], model_config: Mapping[str, Any]) -> dict[Any, Any]:
    """Return a config that contains the data of its model's ``config.json``, independent of that file."""
    there = {key: value for key, value in data.items() if key != "pretrained_model_dir"}
    model = {key: value for key, value in (data.get("model") or {}).items() if key != "pretrained_model_dir"}
    sizes = {key: value for key, value in model_config.items() if key not in OF_THE_YAML}
    return there | {"model": model | {"model_config": sizes | (model.get("model_config") or {})}}


def _stage_theories(source: SourceFile, dialect: Dialect) -> list[Mapping[str, int]]:
    flat = parse_source(yaml_text(source.data), source.path)
    first = DryrunRequest(config=source.path, reference=dialect is Dialect.MINDFORMERS_PYNATIVE)
    loaded = load_config(first, Job(flat))
    stages = prepare_run(first, loaded).stages
    return [prepare_run(first._replace(stage=stage), loaded).theory for stage in range(stages)]
