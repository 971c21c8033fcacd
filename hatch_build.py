"""What a wheel has beside the checkout: each checklist parsed, so that nobody waits for YAML on the first run."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_IN_WHEEL = "ms_tune/_data/checklists"


class ParsedChecklists(BuildHookInterface):  # type: ignore[type-arg,misc]  # hatchling is not installed for type checks
    """Lays ``NAME.json`` beside each ``NAME.yaml``; a checkout that is installed in place reads the YAML itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is built; ``version`` is ``editable`` for one that only points at the checkout."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from ms_tune.lint.checklist import content_key  # noqa: PLC0415 - the package that is being built
        from ms_tune.lint.rows import rows_as_json  # noqa: PLC0415 - as above

        self._made = TemporaryDirectory()
        folder, made = Path(self.root) / "checklists", Path(self._made.name)
        for number, path in enumerate(sorted([*folder.glob("*.yaml"), *folder.glob("code/*.yaml")])):
            file = made / f"{number}.json"
            content = path.read_bytes()
            file.write_text(rows_as_json(content, content_key(content)), encoding="utf-8")
            target = Path(_IN_WHEEL) / path.relative_to(folder).with_suffix(".json")
            build_data["force_include"][str(file)] = target.as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Called with the wheel written: what was laid into it is not needed any more."""
        if version != "editable":
            self._made.cleanup()
