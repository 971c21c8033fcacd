"""Decide the fate of a config's keys one by one, most of them by the table in ``facts/data/migration.json``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ms_tune.diagnostics import KeyPath
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.keys import BASE, key_at
from ms_tune.facts.migration import Row, is_section, row_for, unset_rows
from ms_tune.facts.models import ModelConfig, ModelFacts, facts_of
from ms_tune.job import Job
from ms_tune.job.script import ScriptJob
from ms_tune.source.yaml import SourceFile
from ms_tune.text import Message, msg
from ms_tune.workflows.migrate.result import Added, Fate, KeyFate

_LONGEST = 20_000  # maximum number of keys; more are refused


def why(name: str, /, **params: object) -> Message:
    """Return the text of a reason."""
    return msg(f"migrate.why.{name}", **params)


@dataclass(slots=True)
class MigrationDraft:
    """A migration in progress."""

    job: Job  # the job of a config, or of a program's arguments as a config
    target: str  # the release of the dynamic graph
    script: ScriptJob | None = None  # the launch script that starts the program; None for a config
    values: dict[tuple[str, ...], Any] = field(default_factory=dict)  # values of the new file, by key
    # Source key of each new key, whose comments are copied.
    origins: dict[tuple[str, ...], KeyPath] = field(default_factory=dict)
    # Comments at keys of the new file, even if a key has no line.
    notes: dict[tuple[str, ...], list[Message]] = field(default_factory=dict)
    added: list[Added] = field(default_factory=list)  # lines that no source key sets
    lines: dict[KeyPath, int] = field(default_factory=dict)  # line numbers of keys without a position in a YAML text
    comments: list[tuple[int, str]] = field(default_factory=list)  # comments of a non-YAML source, with line numbers
    missing: list[Message] = field(default_factory=list)  # required for any file, but missing in the source
    _fates: dict[KeyPath, KeyFate] = field(default_factory=dict)
    _leaves: dict[KeyPath, Any] = field(default_factory=dict)

    @property
    def source(self) -> SourceFile:
        """Return the config, merged with settings from other files."""
        return self.job.source

    @property
    def release(self) -> str:
        """Return the release that the config is read for."""
        return self.job.release.version

    @property
    def dialect(self) -> Dialect:
        """Return the dialect of the keys."""
        return self.job.dialect if self.script is None else Dialect.MEGATRON

    @property
    def model(self) -> ModelConfig:
        """Return the model of the config."""
        return self.job.model

    @property
    def target_model(self) -> ModelFacts:
        """Return the facts about the model's class in the dynamic graph."""
        return facts_of(self.target, kind=self.model.facts.kind)

    def __post_init__(self) -> None:
        self._leaves = dict(list_leaves(self.source.data))
        if len(self._leaves) > _LONGEST:
            raise ConfigError(msg("migrate.too-many", most=_LONGEST), path=self.source.path)

    def add_base(self, value: object) -> None:
        """Add the key that named other files, whose settings are already merged into the source."""
        self._leaves = {(BASE,): value, **self._leaves}
        self.default((BASE,), why("merged"))

    def get(self, dotted: str, default: object = None) -> Any:  # noqa: ANN401 - settings are of all types
        """Return a value of the source, or the default."""
        value = self.source.get(tuple(dotted.split(".")))
        return default if value is None else value

    def open_keys(self) -> list[tuple[KeyPath, Any]]:
        """Return the keys that are not decided yet, with their values."""
        return [(path, value) for path, value in self._leaves.items() if path not in self._fates]

    def has(self, path: KeyPath) -> bool:
        """Return whether the source sets this key to a single value."""
        return path in self._leaves

    def open_below(self, *path: str | int) -> list[KeyPath]:
        """Return this key and the keys below it that are not decided yet."""
        return [one for one, _ in self.open_keys() if one[: len(path)] == path]

    def translate(
        self,
        path: KeyPath,
        to: tuple[str, ...],
        value: Any,  # noqa: ANN401 - settings are of all types
        reason: Message | None = None,
    ) -> None:
        """Translate a key to one of the new file; ask about a value that is infinite or NaN."""
        if not is_finite(value):
            self.ask(path, why("not-finite"), to)
            return
        if path in self._leaves and path not in self._fates:
            self._enter(path, Fate.TRANSLATED, to, value, reason)
        self.values[to] = value
        self.origins.setdefault(to, path)

    def default(self, path: KeyPath, reason: Message) -> None:
        """Mark a key as default: it needs no line in the new file."""
        self._enter(path, Fate.DEFAULT, reason=reason)

    def drop(self, path: KeyPath, reason: Message, *, blocks: bool = False) -> None:
        """Mark a key as dropped: it has no counterpart."""
        self._enter(path, Fate.NONE, reason=reason, blocks=blocks)

    def ask(self, path: KeyPath, reason: Message, at: tuple[str, ...] = (), *, blocks: bool = False) -> None:
        """Mark a key as a question to the user, which is written at this place of the new file."""
        self._enter(path, Fate.ASK, to=at, reason=reason, blocks=blocks)

    def add(self, to: tuple[str, ...], value: Any, reason: Message) -> None:  # noqa: ANN401 - settings are of all types
        """Add a line that no source key sets."""
        if to in self.values:
            return
        if not is_finite(value):
            self.note(to, why("not-finite"))
            return
        self.values[to] = value
        self.added.append(Added(to, value, reason))
        self.notes.setdefault(to, []).append(reason)

    def note(self, at: tuple[str, ...], message: Message) -> None:
        """Add a comment at a key of the new file."""
        self.notes.setdefault(at, []).append(message)

    def entries(self) -> tuple[KeyFate, ...]:
        """Return the fates in source order."""
        return tuple(self._fates[path] for path in self._leaves)

    def _enter(  # noqa: PLR0913, PLR0917 - an entry by its parts
        self,
        path: KeyPath,
        fate: Fate,
        to: tuple[str, ...] = (),
        new: Any = None,  # noqa: ANN401 - settings are of all types
        reason: Message | None = None,
        blocks: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> None:
        if path not in self._leaves or path in self._fates:
            return
        position = self.source.position(path)
        line = (position.key or position.value).line if position else self.lines.get(path)
        self._fates[path] = KeyFate(path, self._leaves[path], line, fate, to, new, reason, blocks)


def is_finite(value: object) -> bool:
    """Return whether a value contains no infinity or NaN (``.inf``, ``.nan``, or a text such as ``1e400`` once it is parsed)."""
    if isinstance(value, (list, tuple)):
        return all(map(is_finite, value))
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    return not isinstance(value, float) or math.isfinite(value)


def is_off(value: object) -> bool:
    """Return whether a switch is off, or every value of a list is zero or off."""
    return all(map(is_off, value)) if isinstance(value, list) else value in (False, None, 0)


def list_leaves(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every value that is not a section, with its key; only the list under ``callbacks`` is split, others are one value."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from list_leaves(
                item, (*path, key if isinstance(key, int) and not isinstance(key, bool) else str(key))
            )
    elif path == ("callbacks",) and isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        for index, item in enumerate(value):
            yield from list_leaves(item, (*path, index))
    elif path:
        yield path, value


# `ParallelismConfig.__post_init__` of MindFormers 2.1 refuses TP without sequence parallelism.
_SEQUENCE_SINCE = "2.1"


def require_sequence_parallel(draft: MigrationDraft, path: KeyPath, tensor: int) -> bool:
    """Enable sequence parallelism if the release requires it for this TP size; return whether that was needed."""
    needed = draft.target >= _SEQUENCE_SINCE and tensor > 1 and draft.source.get(path) is not True
    if needed:
        draft.translate(path, ("parallelism", "sequence_parallel"), value=True, reason=why("sequence"))
    return needed


# Section of the new file for each section of the source: for questions and comments. The first ones give a section its comments.
SECTIONS = {
    "lr_schedule": "lr_scheduler",
    "model": "model",
    "optimizer": "optimizer",
    "context": "context",
    "train_dataset": "train_dataset",
    "runner_config": "training",
    "runner_wrapper": "training",
    "parallel_config": "parallelism",
    "parallel": "parallelism",
    "callbacks": "callbacks",
    "recompute_config": "recompute",
    "swap_config": "swap",
    "monitor_config": "monitor",
    "optimizer_config": "optimizer",
    "dataset_config": "train_dataset",
    "training_config": "training",
    "lora_config": "lora_config",
}


def apply_table(draft: MigrationDraft) -> None:
    """Decide every key with a table row, ask about all others, then add values whose default differs on the other side."""
    for path, value in draft.open_keys():
        row = row_for(path, value, draft.target, draft.dialect)
        if row is None:
            _ask_unknown(draft, path, value)
        elif value is None and draft.script is not None:  # known only when the script runs
            draft.ask(path, why("not-evaluable"), _section_for(draft, path))
        else:
            apply_row(draft, row, path, value)
    for row in unset_rows(draft.target, draft.dialect):
        if row.to not in draft.values and not draft.has(row.path):
            draft.add(row.to, row.unset, why("unset", key=".".join(row.path)))


def _section_for(draft: MigrationDraft, path: KeyPath) -> tuple[str, ...]:
    section = SECTIONS.get(str(path[0]), "" if draft.dialect is Dialect.MINDFORMERS else "model")
    return (section,) if section else ()


def _ask_unknown(draft: MigrationDraft, path: KeyPath, value: object) -> None:
    # Ask about a key without a row; an empty section is a default. For other frameworks, the key depends on the network.
    static = draft.dialect is Dialect.MINDFORMERS
    if static and not value and not isinstance(value, (bool, int, float)) and is_section(path, draft.target):
        draft.default(path, why("empty"))
    else:
        draft.ask(path, why("unknown" if static else "other-network"), _section_for(draft, path))


def apply_row(draft: MigrationDraft, row: Row, path: KeyPath, value: Any) -> None:  # noqa: ANN401 - of all types
    """Set the fate of a key from its row."""
    if row.fate == "translated":
        to = row.to if row.callback else (*row.to, *map(str, path[len(row.path) :]))
        new = row.turned(value)
        if not row.below and not _takes_type(to, new):
            draft.ask(path, why("type", key=".".join(to)), to[:-1])
        else:
            draft.translate(path, to, new)
    elif row.fate == "default":
        draft.default(path, why(row.why))
    elif row.fate == "none":
        draft.drop(path, why(row.why), blocks=row.blocks)
    else:
        draft.ask(path, why(row.why), _section_for(draft, path), blocks=row.blocks)


def _takes_type(to: tuple[str, ...], value: object) -> bool:
    try:
        types = key_at(Dialect.MINDFORMERS_PYNATIVE, *to).types
    except KeyError:
        return True  # a key of a section with free keys
    names = {bool: ("bool",), int: ("int", "float"), float: ("float",), str: ("str",), type(None): ("null",)}
    wanted = names.get(type(value), ("list", "dict"))
    return not types or any(one.partition("[")[0] in wanted for one in types)
