"""Migrate MindSpeed-Core-MS r0.1.0 and MindSpeed-LLM jobs to MindFormers' dynamic graph, with questions for all unclear keys.

The dynamic graph has none of their networks, so the choice of a network is always a question; sizes, parallel dimensions, layer
lists, batch, optimizer and schedule are migrated. Sources: ``mindspeed_ms/core/config.py`` (r0.1.0),
``megatron/training/arguments.py`` (core_v0.12.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ms_tune.diagnostics import KeyPath
from ms_tune.dialects.convert_layers import Converted
from ms_tune.dialects.megatron.arguments import ProgramArguments
from ms_tune.dialects.megatron.placement import ARGUMENTS
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.models import UNKNOWN
from ms_tune.normalize.convert import TargetDialect, convert_job, convert_script
from ms_tune.text import Message
from ms_tune.workflows.migrate.draft import MigrationDraft, apply_table, require_sequence_parallel, why
from ms_tune.workflows.migrate.model import write_settings

_LISTS = ("num_layer_list", "recompute_config", "recompute", "select_recompute", "select_comm_recompute")
# Keys of TP size and of sequence parallelism.
_TENSOR: dict[Dialect, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Dialect.MINDSPEED_MS: (("parallel_config", "tensor_model_parallel_size"), ("parallel_config", "sequence_parallel")),
    Dialect.MEGATRON: (("--tensor-model-parallel-size",), ("--sequence-parallel",)),
}
# Settings without a common default: if missing, a question is written at the new key.
_WITHOUT_DEFAULT: dict[Dialect, tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...]] = {
    Dialect.MINDSPEED_MS: (
        (("training_config", "training_iters"), ("training", "steps"), "steps-given"),
        (("dataset_config", "micro_batch_num"), ("training", "global_batch_size"), "batch-given"),
        (("optimizer_config", "optimizer_type"), ("optimizer", "type"), "optimizer"),
    ),
    Dialect.MEGATRON: (
        (("--train-iters",), ("training", "steps"), "steps-given"),
        (("--global-batch-size",), ("training", "global_batch_size"), "batch-given"),
        (("--lr-decay-style",), ("lr_scheduler", "type"), "schedule-kind"),
    ),
}
_BETAS = ("--adam-beta1", "--adam-beta2")
_USUAL_BETAS = (0.9, 0.999)


def arguments_of(command: ProgramArguments) -> tuple[dict[str, Any], dict[tuple[str | int, ...], int]]:
    """Return the values of a program's arguments and their lines; a value known only when the script runs is None."""
    values: dict[str, Any] = {}
    lines: dict[tuple[str | int, ...], int] = {}
    for one in command.items:
        dest = one.definitions[0].dest if one.definitions else ""
        value = command.value(dest) if dest else [word.text for word in one.values]
        values[one.name] = None if value is UNKNOWN else value
        lines[one.name,] = one.word.pieces[0].place.span.line if one.word.pieces else 0
    return values, lines


def decide_mindspeed(draft: MigrationDraft) -> None:
    """Decide the keys of a MindSpeed-Core-MS config."""
    keys = [path for path, _ in draft.open_keys() if path[0] == "parallel_config" and path[1] in _LISTS]
    _apply_layers(draft, keys, convert_job(draft.job, _target_dialect(draft)))
    shards = ("training_config", "use_distributed_optimizer")
    if draft.get("training_config.wrap_with_ddp") is not True and draft.has(shards):
        # `core/config.py` 1893 to 1943: disabled with a warning.
        draft.translate(shards, ("parallelism", "data_parallel_shard"), 1, why("needs-ddp"))
    _decide_others(draft)


def decide_megatron(draft: MigrationDraft) -> None:
    """Decide the arguments of a MindSpeed-LLM program."""
    assert draft.script is not None  # noqa: S101 - its arguments were read from there
    names = set(ARGUMENTS.values()) - {"--num-experts", "--moe-grouped-gemm"}
    keys = [path for path, _ in draft.open_keys() if path[0] in names]
    try:
        (program, *_) = convert_script(draft.script, _target_dialect(draft))
    except ConfigError as error:  # custom layers, or an unknown number of layers: ask about these keys only
        draft.note(("recompute",), error.message)
        _ask_all(draft, keys, error.message)
    else:
        _apply_layers(draft, keys, program.settings)
    _join_betas(draft)
    _decide_heads(draft)
    _decide_others(draft)


def _target_dialect(draft: MigrationDraft) -> TargetDialect:
    return TargetDialect(Dialect.MINDFORMERS_PYNATIVE, draft.target)


def _ask_all(draft: MigrationDraft, keys: Iterable[KeyPath], question: Message) -> None:
    for path in keys:
        draft.ask(path, question, ("recompute",))


def _apply_layers(draft: MigrationDraft, keys: Iterable[KeyPath], converted: Converted | None) -> None:
    # Decide the keys of layers: the plan has already produced the settings, unless that failed.
    errors = write_settings(draft, converted) if converted is not None else []
    if errors or converted is None or not converted.values:
        _ask_all(draft, keys, errors[0] if errors else why("layers"))
        return
    for path in keys:
        name = str(path[-1])
        placed = any(part in name for part in ("layer", "stage", "pipeline")) and "recompute" not in name
        to = ("parallelism", "pipeline_parallel_layers_per_stage") if placed else ("recompute", "mode")
        draft.translate(path, to, draft.values[to], why("placed"))


def _join_betas(draft: MigrationDraft) -> None:
    given = [draft.source.get((name,), usual) for name, usual in zip(_BETAS, _USUAL_BETAS, strict=True)]
    if not all(isinstance(one, float) for one in given):
        return
    target = ("optimizer", "betas")
    for name in _BETAS:
        if draft.has((name,)):
            draft.translate((name,), target, given)
    draft.add(target, given, why("unset", key=_BETAS[0]))


def _decide_heads(draft: MigrationDraft) -> None:
    # Decide the key and value heads: the number of groups set with ``--group-query-attention``, else as many as query
    # heads. ``core_transformer_config_from_args`` of ``megatron/training/arguments.py`` (core_v0.12.1).
    switch, groups, heads = ("--group-query-attention",), ("--num-query-groups",), ("--num-attention-heads",)
    target = ("model", "num_key_value_heads")
    grouped = draft.source.get(switch) is True
    number = draft.source.get(groups, 1) if grouped else draft.source.get(heads)
    if type(number) is not int:
        return  # known only when the script runs, or latent attention without an explicit number
    if grouped:
        draft.translate(switch, target, number)
        draft.translate(groups, target, number)
        draft.values[target] = number
    else:
        draft.default(groups, why("no-groups"))
        if draft.source.get(("--multi-latent-attention",)) is not True:
            draft.add(target, number, why("no-groups"))


def _decide_others(draft: MigrationDraft) -> None:
    # Decide all other keys by the table; keys without a row depend on the network.
    dialect = draft.dialect
    split_by, path = _TENSOR[dialect]
    tensor = draft.source.get(split_by)
    require_sequence_parallel(draft, path, tensor if type(tensor) is int else 1)
    apply_table(draft)
    # Weights are saved if ``save_interval`` is set, and in a script also the folder.
    saves = draft.get("training_config.save_interval") is not None
    if draft.script is not None:
        saves = draft.has(("--save",)) and draft.has(("--save-interval",))
    if not saves:
        draft.add(("checkpoint", "enable_save"), value=False, reason=why("saves-not"))
    for path, to, reason in _WITHOUT_DEFAULT[dialect]:
        if to not in draft.values and not draft.has(path):
            draft.note(to, why(reason))
    draft.note(("model",), why("which-network"))
