"""Decide the model's settings and its layers' settings, and add defaults that differ between the two graphs."""

from __future__ import annotations

from ms_tune.diagnostics import KeyPath, Severity
from ms_tune.dialects import PlanIssue
from ms_tune.dialects.convert_layers import Converted
from ms_tune.enums import Dialect
from ms_tune.facts.keys import dynamic_kinds, list_model_keys
from ms_tune.facts.migration import row_for, unread
from ms_tune.facts.models import CORE_SWAP, LAYERS, MTP_LAYERS, UNKNOWN, is_legacy, model_of, names_of
from ms_tune.normalize.convert import TargetDialect, convert_job
from ms_tune.source.yaml import source_of
from ms_tune.text import Message
from ms_tune.workflows.migrate.draft import MigrationDraft, is_finite, is_off, why
from ms_tune.workflows.migrate.write import nest_sections

_SECTION = ("model", "model_config")
_NAMES = ("model_type", "architectures")
_FOLDERS: tuple[KeyPath, ...] = (("pretrained_model_dir",), ("model", "pretrained_model_dir"))
# Keys that depend on the model, each with its path in the new file.
_OF_LAYERS: dict[KeyPath, tuple[str, ...]] = {
    ("model",): ("model",),
    ("recompute_config",): ("recompute",),
    ("swap_config",): ("swap",),
    ("parallel_config", "pipeline_stage"): ("parallelism", "pipeline_parallel"),
    ("moe_config",): ("model",),
}


def is_served(draft: MigrationDraft) -> bool:
    """Return whether the dynamic graph has a network for the model."""
    facts = draft.target_model
    return draft.model.known and facts.name is not None and "dynamic" in facts.modes


def apply_model(draft: MigrationDraft) -> None:
    """Decide the names and sizes of the model."""
    facts = draft.target_model
    for path in draft.open_below(*_SECTION):
        if path != _SECTION and row_for(path, draft.source.get(path), draft.target) is None:
            _decide_setting(draft, path)
    if facts.kind:
        draft.add(("model", "model_type"), facts.kind, why("named"))
    if facts.architectures:
        draft.add(("model", "architectures"), draft.model.architecture or facts.architectures[0], why("named"))
    _add_folder_sizes(draft)


def find_missing_folder(draft: MigrationDraft) -> KeyPath | None:
    """Return the key of a missing folder whose ``config.json`` alone defines the model, or None."""
    if draft.model.kind or draft.model.architecture or is_legacy(draft.source.data):
        return None
    return next((path for path in _FOLDERS if draft.has(path)), None)


def ask_model(draft: MigrationDraft, folder: KeyPath) -> None:
    """Ask which model it is, and about all keys that depend on it; the rest of the file does not depend on the answer."""
    named = draft.source.get(folder)
    draft.ask(folder, why("folder", folder=named) if named else why("folder-empty"), ("model",))
    stages, target = ("parallel_config", "pipeline_stage"), ("parallelism", "pipeline_parallel")
    if draft.get("use_parallel", default=False) is not True or draft.source.get(stages) == 1:
        draft.translate(stages, target, 1)
    for section, place in _OF_LAYERS.items():
        for path in draft.open_below(*section):
            value = draft.source.get(path)
            if section[0] == "recompute_config" and is_off(value):
                draft.default(path, why("off"))
            elif row_for(path, value, draft.target) is None:
                draft.ask(path, why("hangs"), place)


def refuse_model(draft: MigrationDraft) -> None:
    """Block the keys of a model without a network in the dynamic graph; settings of its layers become questions."""
    kind = draft.model.kind or draft.model.architecture
    ways: list[KeyPath] = [("model", "arch", "type"), *((*_SECTION, name) for name in (*_NAMES, "type"))]
    if kind and is_legacy(draft.source.data):
        ways.append(("use_legacy",))
    there = [path for path in ways if draft.has(path)]
    for path in _FOLDERS if not kind else ():
        draft.drop(path, why("folder-legacy"), blocks=True)
    networks = ", ".join(dynamic_kinds(draft.target))
    for path in there:
        reason = why("no-network", model=kind or "?", release=draft.target, networks=networks)
        draft.drop(path, reason, blocks=True)
    if not there and not any(map(draft.has, _FOLDERS)):
        draft.missing.append(why("no-model"))
    for section in _OF_LAYERS:
        for path in draft.open_below(*section):
            draft.ask(path, why("waits"))


def _decide_setting(draft: MigrationDraft, path: KeyPath) -> None:
    key, value, facts = str(path[2]), draft.source.get(path), draft.target_model
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
    elif not facts.knows(key) and here.knows(key):
        draft.drop(path, why("not-known", key=key))
    elif not facts.knows(key) and list_model_keys().get(key):  # a key of another model
        draft.default(path, why("ignored-both", key=key))
    elif not facts.knows(key):
        draft.ask(path, why("unknown"), ("model",))
    elif taken is not None and len(path) == len(_SECTION) + 1:
        draft.translate(path, taken, draft.values[taken])
        if taken[1] != key:  # keep the name chosen by the author
            draft.values[taken[0], key] = draft.values.pop(taken)
            draft.origins[taken[0], key] = draft.origins.pop(taken, path)
    else:
        draft.translate(path, ("model", *map(str, path[2:])), value)


def _add_folder_sizes(draft: MigrationDraft) -> None:
    # Add values of the model's ``config.json``, which the dynamic graph does not read.
    facts = draft.target_model
    fields = {facts.field_names.get(to[1], to[1]) for to in draft.values if to[0] == "model" and len(to) > 1}
    for key, value in (draft.source.model_config or {}).items():
        field = facts.field_names.get(key, key)
        if facts.knows(key) and key not in facts.ignored and field not in unread(draft.target) and field not in fields:
            draft.add(("model", key), value, why("of-folder"))


def apply_defaults(draft: MigrationDraft) -> None:
    """Add the old default of model fields that are not set and whose defaults differ between the two classes."""
    for field, (old, _) in sorted(differing_fields(draft).items()):
        if is_finite(old):
            draft.add(("model", draft.target_model.names(field)[0]), old, why("class-default", field=field))


def differing_fields(draft: MigrationDraft) -> dict[str, tuple[object, object]]:
    """Return the fields of both classes whose values differ, with the old and the new value."""
    source = source_of(nest_sections(draft.values), draft.source.path)
    there = model_of(source, Dialect.MINDFORMERS_PYNATIVE, draft.target)
    fields = set(there.facts.fields) & set(draft.model.facts.fields) - unread(draft.target) - _ELSEWHERE
    found = {}
    for field in fields:
        old, new = draft.model.value(field), there.value(field)
        if UNKNOWN not in (old, new) and old is not None and old != new:
            found[field] = (old, new)
    return found


# Fields that the trainers set from other sections of the config.
_ELSEWHERE = frozenset((
    *("offset", "pp_interleave_num", "virtual_pipeline_model_parallel_size", "parallel_config", "recompute_config"),
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "sequence_parallel"),
    *("expert_model_parallel_size", "data_parallel_size", "micro_batch_num", MTP_LAYERS, LAYERS),
    *CORE_SWAP,
))  # fmt: skip


# Keys that determine recomputation and placement, each with the most important key of the dynamic graph.
_LAYER_KEYS: dict[KeyPath, tuple[str, ...]] = {
    ("recompute_config", "recompute"): ("recompute", "mode"),
    ("recompute_config", "select_recompute"): ("recompute", "mode"),
    ("recompute_config", "select_recompute_exclude"): ("recompute", "exclude_op"),
    ("recompute_config", "select_comm_recompute"): ("recompute_comm", "select_module"),
    ("recompute_config", "select_comm_recompute_exclude"): ("recompute", "exclude_op"),
    ("parallel_config", "pipeline_stage"): ("parallelism", "pipeline_parallel"),
    (*_SECTION, "pp_interleave_num"): ("parallelism", "pipeline_parallel_interleave_num"),
    (*_SECTION, "offset"): ("parallelism", "pipeline_parallel_layers_per_stage"),
    (*_SECTION, "num_hidden_layers"): ("model", "num_hidden_layers"),
}
_PLACES = tuple(path for path in _LAYER_KEYS if path[0] == "model")


def write_settings(draft: MigrationDraft, converted: Converted) -> list[Message]:
    """Write the layer settings to the new file; settings that it cannot express become comments and are returned."""
    for dotted, value in converted.values.items():
        if value is not None:
            draft.values[tuple(dotted.split("."))] = value
    errors = [one.message for one in converted.problems if one.severity is Severity.ERROR]
    for message in errors:
        draft.note(("recompute",), message)
    return errors


def apply_layers(draft: MigrationDraft) -> None:
    """Decide placement, recompute and swap of the static graph, layer by layer (:mod:`ms_tune.normalize.convert`)."""
    converted = convert_job(draft.job, TargetDialect(Dialect.MINDFORMERS_PYNATIVE, draft.target))
    errors, caveats = write_settings(draft, converted), _list_caveats(converted)
    for problem in converted.problems:
        for path in draft.open_below("swap_config") if problem.id == PlanIssue.SWAP_DROPPED else ():
            draft.default(path, problem.message)
    if not converted.values:
        reason = errors[0] if errors else why("layers")
        for path in _LAYER_KEYS:
            draft.ask(path, reason, ("recompute",), blocks=path[0] == "model" and bool(errors))
        if not errors:
            draft.note(("recompute",), reason)
        return
    for path, to in _LAYER_KEYS.items():
        for key in draft.open_below(*path):  # lists by pattern are keys below this one
            _decide_layer_key(draft, key, to, errors, caveats.get(path[-1]))
    # Swap keys: legacy models have a separate section, other models have them in the model's settings.
    names = draft.model.facts.field_names
    settings = [path for path in draft.open_below(*_SECTION) if len(path) > len(_SECTION)]
    swaps = [path for path in settings if names.get(str(path[2]), str(path[2])) in CORE_SWAP]
    for path in (*draft.open_below("swap_config"), *swaps):
        caveat = caveats.get("op_swap") if "op_swap" in path else None
        caveat = caveat or (None if path[-1] in names_of("swap") else caveats.get("swap"))
        _decide_layer_key(draft, path, ("swap", "enable"), errors, caveat)


def _list_caveats(converted: Converted) -> dict[str | int, Message]:
    found: dict[str | int, Message] = {
        "select_comm_recompute": why("comm"),
        "select_comm_recompute_exclude": why("comm-kept"),
    }
    for one in converted.problems:
        if one.id == PlanIssue.CONVERTED_WIDER:
            found.setdefault(str(one.message.params["key"]), one.message)
        elif one.id == PlanIssue.CONVERTED_PREFETCH:
            found["swap"] = one.message
        elif one.id in {PlanIssue.CONVERTED_STAND_IN, PlanIssue.CONVERTED_NO_TREES}:
            for path in _LAYER_KEYS:
                if path[0] == "recompute_config" and path[-1] != "recompute":
                    found.setdefault(path[-1], one.message)
    return found


def _decide_layer_key(
    draft: MigrationDraft, path: KeyPath, to: tuple[str, ...], errors: list[Message], caveat: Message | None
) -> None:
    # Translate a layer key to the value that the plan has produced; ask if it could not be expressed, or not exactly.
    off = is_off(draft.source.get(path))
    question = errors[0] if errors and path not in _PLACES else caveat
    if to in draft.values and (off or question is None):
        draft.translate(path, to, draft.values[to])
    elif to in draft.values and question is not None:
        draft.ask(path, question, to)
    elif off or (to[0] == "swap" and not errors):
        draft.default(path, why("off"))
    else:
        draft.ask(path, errors[0] if errors else why("layers"), to[:1])
