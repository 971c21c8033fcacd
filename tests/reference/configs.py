"""Provide small jobs for the reference transformer, each with a different feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.files import read_data


@dataclass(frozen=True)
class Case:
    """A config and its devices."""

    config: dict[str, Any]
    devices: int


def _read_cases() -> dict[str, Case]:
    jobs = read_data("reference_jobs.yaml")
    found = {}
    for name, job in jobs["cases"].items():
        config, sections = jobs["bases"][job["base"]], job.get("sections", {})
        if "like" in job:
            sections = {**sections, "model": {**jobs["models"][job["like"]], **sections.get("model", {})}}
        changed = {key: {**config.get(key, {}), **values} for key, values in sections.items()}
        found[name] = Case({**config, **changed}, job["devices"])
    return found


CASES = _read_cases()
