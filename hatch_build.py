"""Parses the checklists, for a wheel and for a checkout alike: nobody waits for YAML on the first run, and a wheel has each once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ParsedChecklists(BuildHookInterface):  # type: ignore[type-arg,misc]  # hatchling is not installed for type checks
    """Makes ``NAME.json`` of each ``NAME.yaml``; it counts for as long as the file is the one that it was made of."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is built, the one among them that only points at the checkout."""
        sys.path.insert(0, self.root)
        from ms_tune.lint.checklist import content_key  # noqa: PLC0415 - the package that is being built
        from ms_tune.lint.rows import read_rows, rows_as_json  # noqa: PLC0415 - as above

        folder = Path(self.root) / "checklists"
        for path in (*folder.glob("*.yaml"), *folder.glob("code/*.yaml")):
            content = path.read_bytes()
            text = rows_as_json(content_key(content), *read_rows(content))
            path.with_suffix(".json").write_text(text, encoding="utf-8")
        if version == "standard":
            for path in folder.rglob("*.*"):
                if path.suffix == ".json" or not path.with_suffix(".json").exists():
                    build_data["force_include"][str(path)] = f"ms_tune/_data/{path.relative_to(self.root)}"
