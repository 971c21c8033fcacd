"""Find the generation of a config: five were seen in eight months, and no file names its own (``releases.json``)."""

from __future__ import annotations

from ms_tune.dialects.hyper_parallel.read import find_targets, is_target_of, tables_of, walk_fields
from ms_tune.enums import Dialect
from ms_tune.facts.query import served


def release_of(data: dict[str, object]) -> str:
    """Return the newest generation that knows all keys and targets of a config; otherwise the one that knows most."""

    def count_unknown(generation: str) -> int:
        keys = sum(key is None for _, key, _ in walk_fields(data, tables_of(generation)))
        return keys + sum(not is_target_of(target, generation) for _, target in find_targets(data))

    return min(reversed(served(Dialect.HYPER_PARALLEL)), key=count_unknown)
