"""Provide small jobs for the reference transformer, each with a different feature."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Case:
    """A config and its devices."""

    config: dict[str, Any]
    devices: int


def _read_cases() -> dict[str, Case]:
    jobs = yaml.safe_load((Path(__file__).parents[1] / "data" / "reference_jobs.yaml").read_text("utf-8"))
    found = {}
    for name, job in jobs["cases"].items():
        config, sections = jobs["bases"][job["base"]], job.get("sections", {})
        if "like" in job:
            sections = {**sections, "model": {**jobs["models"][job["like"]], **sections.get("model", {})}}
        changed = {key: {**config.get(key, {}), **values} for key, values in sections.items()}
        found[name] = Case({**config, **changed}, job["devices"])
    return found


CASES = _read_cases()
