"""Edit a copy of a config that records its changes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

from ms_tune.dialects.job_parts import SettingChange
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.job import Job
from ms_tune.records import Any
from ms_tune.source.yaml import source_of
from ms_tune.text import msg


class ConfigCopy:
    """The values of a config, editable by dotted key."""

    def __init__(self, data: dict[str, Any], path: Path, sections: Sequence[str] = (), job: Job | None = None) -> None:
        """Copy a config; ConfigError if one of the sections is not a mapping."""
        self.data: dict[str, Any] = copy.deepcopy(data)
        self.path = path
        self._changes: dict[str, SettingChange] = {}
        self._job, self._version = job, job.version if job is not None else None
        for section in sections:
            if not isinstance(self.get(section, {}), dict):
                raise ConfigError(msg("model.section-not-a-mapping", key=section), path=path)

    @property
    def changes(self) -> tuple[SettingChange, ...]:
        """Return the differences from the config, one entry per key."""
        return tuple(change for change in self._changes.values() if change.before != change.after)

    def get(self, path: str, default: object = None) -> Any:  # noqa: ANN401 - YAML values have any type
        """Return a value; the default if it is absent or null."""
        node: Any = self.data
        for part in path.split("."):
            if not isinstance(node, dict) or part not in node:
                return default
            node = node[part]
        return default if node is None else node

    def set(self, path: str, value: object) -> None:
        """Set a value; create missing sections of the path."""
        *parents, last = path.split(".")
        node = self.data
        for part in parents:
            if node.get(part) is None:
                node[part] = {}
            node = node[part]
        before = node.get(last)
        if before != value or type(before) is not type(value) or last not in node:
            node[last] = value
            self._remember(path, before, value)

    def remove(self, path: str) -> None:
        """Remove a key."""
        *parents, last = path.split(".")
        node: Any = self.data
        for part in parents:
            node = node.get(part)
            if not isinstance(node, dict):
                return
        if last in node:
            self._remember(path, node.pop(last), None)

    def count(self, path: str, default: int) -> int:
        """Return a whole number above zero; ConfigError for another value."""
        value = self.get(path, default)
        if type(value) is not int or value <= 0:
            raise ConfigError(msg("model.not-positive", key=path, value=repr(value)), path=self.path)
        return value

    def names(self, path: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return a list of names; ConfigError for another value."""
        value = self.get(path, list(default))
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(msg("model.not-names", key=path, value=repr(value)), path=self.path)
        return tuple(value)

    def copy(self) -> ConfigCopy:
        """Return a copy with the same values and changes, for trials."""
        made = ConfigCopy(self.data, self.path, job=self._job)
        made._changes, made._version = dict(self._changes), self._version
        return made

    @property
    def job(self) -> Job:
        """Return the job of these values as if read from a file, for MindFormers' static graph; cached until a value changes."""
        if self._job is None:
            self._job = Job(source_of(self.data, self.path), dialect=Dialect.MINDFORMERS, version=self._version)
        return self._job

    def _remember(self, path: str, before: object, after: object) -> None:
        self._job = None
        first = self._changes.get(path)
        self._changes[path] = SettingChange(path, first.before if first else before, after)
