"""Tells which framework a config is written for, by the keys that only one of them knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.frameworks.dialect import YAML_DIALECTS, Dialect
from ms_tune.frameworks.releases import own_keys

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


def recognise(data: object) -> Recognition:
    """The dialect of a config's values."""
    strong, weak = ({one: _present(data, own_keys(one, kind)) for one in YAML_DIALECTS} for kind in ("alone", "also"))
    score = {dialect: (len(strong[dialect]), len(weak[dialect])) for dialect in YAML_DIALECTS}
    ranked = sorted(YAML_DIALECTS, key=lambda dialect: score[dialect], reverse=True)
    best, second = ranked[0], ranked[1]
    if score[best] == score[second]:
        everything = tuple(path for dialect in YAML_DIALECTS for path in strong[dialect] + weak[dialect])
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
