"""The model's own settings: names that the dynamic graph's class of it knows, and defaults that differ between the two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.enums import Dialect
from ms_tune.facts.keys import dynamic_kinds, known
from ms_tune.facts.migration import row_for, unread
from ms_tune.facts.models import CORE_SWAP, LAYERS, MTP_LAYERS, UNKNOWN, facts_of, is_legacy, model_of
from ms_tune.source.yaml import source_of
from ms_tune.workflows.migrate.draft import is_finite, is_off, why
from ms_tune.workflows.migrate.write import nested

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.facts.models import ModelFacts
    from ms_tune.workflows.migrate.draft import MigrationDraft

_SECTION = ("model", "model_config")
_NAMES = ("model_type", "architectures")
_FOLDERS: tuple[KeyPath, ...] = (("pretrained_model_dir",), ("model", "pretrained_model_dir"))
# What hangs on which model it is, and where it would stand in the new file.
_OF_LAYERS: dict[KeyPath, tuple[str, ...]] = {
    ("model",): ("model",),
    ("recompute_config",): ("recompute",),
    ("swap_config",): ("swap",),
    ("parallel_config", "pipeline_stage"): ("parallelism", "pipeline_parallel"),
    ("moe_config",): ("model",),
}


def is_served(draft: MigrationDraft) -> bool:
    """Whether the dynamic graph has a network for the model."""
    facts = facts_of(draft.target, kind=draft.model.facts.kind)
    return draft.model.known and facts.name is not None and "dynamic" in facts.modes


def apply_model(draft: MigrationDraft) -> None:
    """The names and sizes of the model."""
    facts = facts_of(draft.target, kind=draft.model.facts.kind)
    for path in list(draft.under(*_SECTION)):
        if path != _SECTION and row_for(path, draft.source.get(path), draft.target) is None:
            _setting(draft, facts, path)
    for name, value in _names(draft, facts):
        draft.add(("model", name), value, why("named"))
    _of_folder(draft, facts)


def folder_not_here(draft: MigrationDraft) -> KeyPath | None:
    """The key of a folder in whose ``config.json`` the model stands, which is not here: nothing else says which model it is."""
    if draft.model.kind or draft.model.architecture or is_legacy(draft.source.data):
        return None
    return next((path for path in _FOLDERS if draft.has(path)), None)


def ask_model(draft: MigrationDraft, folder: KeyPath) -> None:
    """Which model it is, and all that hangs on it: questions, for the rest of the file is the same whatever the answer."""
    named = draft.source.get(folder)
    draft.ask(folder, why("folder", folder=named) if named else why("folder-empty"), ("model",))
    stages, target = ("parallel_config", "pipeline_stage"), ("parallelism", "pipeline_parallel")
    if draft.get("use_parallel", default=False) is not True or draft.source.get(stages) == 1:
        draft.translate(stages, target, 1)
    for section, place in _OF_LAYERS.items():
        for path in draft.under(*section):
            value = draft.source.get(path)
            if section[0] == "recompute_config" and is_off(value):
                draft.default(path, why("off"))
            elif row_for(path, value, draft.target) is None:
                draft.ask(path, why("hangs"), place)


def refuse_model(draft: MigrationDraft) -> None:
    """What stands in the way where the dynamic graph has no network for the model; the settings of its layers wait."""
    kind = draft.model.kind or draft.model.architecture
    ways: list[KeyPath] = [("model", "arch", "type"), *((*_SECTION, name) for name in (*_NAMES, "type"))]
    if kind and is_legacy(draft.source.data):
        ways.append(("use_legacy",))
    there = [path for path in ways if draft.has(path)]
    for path in _FOLDERS if not kind else ():
        draft.drop(path, why("folder-legacy"), blocks=True)
    for path in there:
        draft.drop(
            path,
            why("no-network", model=kind or "?", release=draft.target, networks=", ".join(dynamic_kinds(draft.target))),
            blocks=True,
        )
    if not there and not any(map(draft.has, _FOLDERS)):
        draft.missing.append(why("no-model"))
    for section in _OF_LAYERS:
        for path in draft.under(*section):
            draft.ask(path, why("waits"))


def _setting(draft: MigrationDraft, facts: ModelFacts, path: KeyPath) -> None:
    key, value = str(path[2]), draft.source.get(path)
    here, fields = draft.model.facts, facts.field_names
    field = fields.get(key, key)
    same = (to for to in draft.values if to[0] == "model" and to[1:] and fields.get(to[1], to[1]) == field)
    taken = next(same, None)
    if key in _NAMES:
        names = value if isinstance(value, list) else [value]
        draft.translate(path, ("model", key), names[0] if names else None)
    elif key in here.ignored or (draft.model.known and not here.knows(key) and facts.knows(key)):
        draft.default(path, why("ignored-here", key=key))
    elif field in unread(draft.target) or key in facts.ignored:
        draft.drop(path, why("unread", key=key))
    elif not facts.knows(key):
        _no_setting(draft, path, key)
    elif taken is not None and len(path) == len(_SECTION) + 1:
        draft.translate(path, taken, draft.values[taken])
        if taken[1] != key:  # the name that its author chose
            draft.values[taken[0], key] = draft.values.pop(taken)
            draft.origins[taken[0], key] = draft.origins.pop(taken, path)
    else:
        draft.translate(path, ("model", *map(str, path[2:])), value)


def _no_setting(draft: MigrationDraft, path: KeyPath, key: str) -> None:
    """A key that the dynamic graph's class does not know: the static graph's does, another model's does, or nobody does."""
    if draft.model.facts.knows(key):
        draft.drop(path, why("not-known", key=key))
    elif known().get(key):
        draft.default(path, why("ignored-both", key=key))
    else:
        draft.ask(path, why("unknown"), ("model",))


def _names(draft: MigrationDraft, facts: ModelFacts) -> Iterator[tuple[str, str]]:
    if facts.kind:
        yield "model_type", facts.kind
    if facts.architectures:
        yield "architectures", draft.model.architecture or facts.architectures[0]


def _of_folder(draft: MigrationDraft, facts: ModelFacts) -> None:
    """What the model's ``config.json`` says, which the dynamic graph does not read."""
    fields = {facts.field_names.get(to[1], to[1]) for to in draft.values if to[0] == "model" and len(to) > 1}
    for key, value in (draft.source.beside or {}).items():
        field = facts.field_names.get(key, key)
        if facts.knows(key) and key not in facts.ignored and field not in unread(draft.target) and field not in fields:
            draft.add(("model", key), value, why("of-folder"))


def apply_defaults(draft: MigrationDraft) -> None:
    """Fields of the model that nobody wrote and that the two classes fill in differently get their old value."""
    for field, (old, _) in sorted(differing(draft).items()):
        facts = facts_of(draft.target, kind=draft.model.facts.kind)
        if is_finite(old):
            draft.add(("model", facts.names(field)[0]), old, why("class-default", field=field))


def differing(draft: MigrationDraft) -> dict[str, tuple[object, object]]:
    """Fields that both classes read, with what each of them gets where that is not the same."""
    source = source_of(nested(draft.values), draft.source.path)
    there = model_of(source, Dialect.MINDFORMERS_PYNATIVE, draft.target)
    fields = set(there.facts.fields) & set(draft.model.facts.fields) - unread(draft.target) - _ELSEWHERE
    found = {}
    for field in fields:
        old, new = draft.model.value(field), there.value(field)
        if UNKNOWN not in (old, new) and old is not None and old != new:
            found[field] = (old, new)
    return found


# Fields that the trainers fill in from other sections of the config.
_ELSEWHERE = frozenset((
    *("offset", "pp_interleave_num", "virtual_pipeline_model_parallel_size", "parallel_config", "recompute_config"),
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "sequence_parallel"),
    *("expert_model_parallel_size", "data_parallel_size", "micro_batch_num", MTP_LAYERS, LAYERS),
    *CORE_SWAP,
))  # fmt: skip
