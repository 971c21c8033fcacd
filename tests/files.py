"""Read the data files of tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parent / "data"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # written in C: ten times as fast


def read_data(name: str | Path) -> Any:  # noqa: ANN401 - as YAML and JSON have it
    """Return the content of a YAML or JSON file of `tests/data`, or at a path."""
    text = (DATA / name).read_text("utf-8")
    return json.loads(text) if str(name).endswith(".json") else yaml.load(text, _LOADER)  # noqa: S506 - a safe loader
