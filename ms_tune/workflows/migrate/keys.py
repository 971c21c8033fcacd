"""The keys that go over one by one, by the table of ``facts/data/migration.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_tune.enums import Dialect
from ms_tune.facts.keys import key_at
from ms_tune.facts.migration import callback_row, is_section, row_for, unset_rows
from ms_tune.workflows.migrate.draft import why

if TYPE_CHECKING:
    from ms_tune.diagnostics import KeyPath
    from ms_tune.facts.migration import Row
    from ms_tune.workflows.migrate.draft import MigrationDraft

_CHECKPOINTS = "CheckpointMonitor"
# `CheckpointMonitor` of MindFormers 1.9 (`core/callback/callback.py`): what it takes where nothing is said.
_SAVED_EVERY, _KEPT, _PREFIX = 1, 5, "CKP"


def apply_table(draft: MigrationDraft) -> None:
    """Every key that has a row; what has none is asked."""
    _callbacks(draft)
    _same_data(draft)
    _monitoring(draft)
    _folder(draft)
    for path, value in draft.open():
        row = row_for(path, value, draft.target)
        if row is None and not value and not isinstance(value, (bool, int, float)) and is_section(path, draft.target):
            draft.default(path, why("empty"))
        elif row is None:
            draft.ask(path, why("unknown"), _near(path))
        else:
            apply_row(draft, row, path, value, _near(path))
    for row in unset_rows(draft.target):
        if row.to not in draft.values and not draft.has(row.path):
            draft.add(row.to, row.unset, why("unset", key=".".join(row.path)))


def _same_data(draft: MigrationDraft) -> None:
    """``train_dataset_task.dataset_config`` that is not the data set that goes over."""
    path, said = ("train_dataset_task", "dataset_config"), draft.get("train_dataset", {})
    if draft.source.get(path) != said:
        for one in draft.under(*path):
            if draft.source.get(one) != draft.source.get(("train_dataset", *one[2:])):
                draft.ask(one, why("other-data"), ("train_dataset",))


def _monitoring(draft: MigrationDraft) -> None:
    """What is watched, which is read only where watching is on."""
    if draft.get("monitor_config.monitor_on", default=False) is not True:
        for path in draft.under("monitor_config"):
            if path[-1] != "monitor_on":
                draft.default(path, why("monitor-off"))


def _folder(draft: MigrationDraft) -> None:
    """The model's folder, whose weights are loaded where it has any and nothing else is named.

    ``_try_use_pretrained_model_dir_as_ckpt`` of ``trainer/trainer.py`` (1.9).
    """
    for path in (("pretrained_model_dir",), ("model", "pretrained_model_dir")):
        if draft.source.get(path) and not draft.get("load_checkpoint"):
            draft.ask(path, why("folder-weights"), ("checkpoint", "load_path"))


def _near(path: KeyPath) -> tuple[str, ...]:
    """The section of the new file in which a question about a key is asked."""
    sections = {
        "lr_schedule": ("lr_scheduler",),
        "model": ("model",),
        "optimizer": ("optimizer",),
        "context": ("context",),
        "train_dataset": ("train_dataset",),
        "runner_config": ("training",),
        "runner_wrapper": ("training",),
        "parallel_config": ("parallelism",),
        "parallel": ("parallelism",),
        "callbacks": ("callbacks",),
        "recompute_config": ("recompute",),
        "swap_config": ("swap",),
        "monitor_config": ("monitor",),
    }
    return sections.get(str(path[0]), ())


def apply_row(draft: MigrationDraft, row: Row, path: KeyPath, value: Any, near: tuple[str, ...]) -> None:  # noqa: ANN401 - of all types
    """The fate that a row gives a key; a question is asked in the section ``near``."""
    if row.fate == "translated":
        to = row.to if row.callback else (*row.to, *map(str, path[len(row.path) :]))
        new = row.turned(value)
        if not row.below and not _takes(to, new):
            draft.ask(path, why("type", key=".".join(to)), to[:-1])
        else:
            draft.translate(path, to, new)
    elif row.fate == "default":
        draft.default(path, why(row.why))
    elif row.fate == "none":
        draft.drop(path, why(row.why), blocks=row.blocks)
    else:
        draft.ask(path, why(row.why), near, blocks=row.blocks)


def _takes(to: tuple[str, ...], value: object) -> bool:
    """Whether the target's key is of the value's type."""
    try:
        types = key_at(Dialect.MINDFORMERS_PYNATIVE, *to).types
    except KeyError:
        return True  # a key of an open section
    names = {bool: ("bool",), int: ("int", "float"), float: ("float",), str: ("str",), type(None): ("null",)}
    wanted = names.get(type(value), ("list", "dict"))
    return not types or any(one.partition("[")[0] in wanted for one in types)


def _callbacks(draft: MigrationDraft) -> None:
    """Callbacks by their types; saving is a section of its own there, and is on if nothing is said."""
    found = draft.get("callbacks", [])
    callbacks = found if isinstance(found, list) and all(isinstance(one, dict) for one in found) else []
    kinds = [one.get("type") for one in callbacks]
    for index, one in enumerate(callbacks):
        for path in draft.under("callbacks", index):
            key, value = str(path[-1]), draft.source.get(path)
            row = callback_row(one.get("type"), key, value)
            if (
                row is None
                or (one.get("type") == _CHECKPOINTS and index != kinds.index(_CHECKPOINTS))
                or row.to == ("callbacks",)
            ):
                draft.ask(path, why("callback", type=one.get("type"), key=key), ("callbacks",))
            elif row.to == ("checkpoint", "enable_save"):
                draft.translate(path, row.to, value=True)
            else:
                apply_row(draft, row, path, value, _near(path))
    if _CHECKPOINTS in kinds:
        reason = why("unset", key=_CHECKPOINTS)
        draft.add(("checkpoint", "save_interleaved_steps"), _SAVED_EVERY, reason)
        draft.add(("checkpoint", "save_max"), _KEPT, reason)
        draft.add(("checkpoint", "prefix"), _PREFIX, reason)
        folder = str(draft.get("output_dir", "./output")).rstrip("/") or "."
        target = ("checkpoint", "save_path")
        if target not in draft.values and draft.has(("output_dir",)):
            draft.translate(("output_dir",), target, f"{folder}/checkpoint", why("save-path"))
        draft.add(target, f"{folder}/checkpoint", why("save-path"))
    else:
        draft.add(("checkpoint", "enable_save"), value=False, reason=why("no-saving"))
