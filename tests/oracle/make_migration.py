"""Write ``unread`` of ``facts/data/migration.json``: fields of models that no code of a release's dynamic graph asks for.

``python -m tests.oracle.make_migration`` (seconds; it reads the wheels). A field counts as read where its name stands
as a word below ``mindformers/pynative``, in a model's dynamic network, or in a line of the general class that is more
than its declaration.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from ms_tune.enums import Dialect
from ms_tune.facts.models import facts_of
from ms_tune.facts.query import load, served
from tests.oracle import wheels

FILE = Path(__file__).parents[2] / "ms_tune" / "facts" / "data" / "migration.json"
_NETWORK = re.compile(r"mindformers/(pynative/.*|models/.*pynative.*)\.py")
_CLASS = "mindformers/parallel_core/transformer_config.py"
_WORD = re.compile(r"[A-Za-z_]\w*")


def words_of(release: str) -> frozenset[str]:
    """Return every word in the code of a release's dynamic graph.

    Raises:
        OSError: The wheel cannot be downloaded.
    """
    path = wheels.wheel(release)
    if isinstance(path, str):
        raise OSError(path)
    archive = wheels.opened(path)
    found: set[str] = set()
    for name in archive.namelist():
        if _NETWORK.fullmatch(name):
            found.update(_WORD.findall(archive.read(name).decode()))
    # `__post_init__` and the methods that it calls: one field may be computed from another.
    found.update(re.findall(r"self\.(\w+)", archive.read(_CLASS).decode()))
    return frozenset(found)


def unread(release: str) -> list[str]:
    """Return fields of models of the dynamic graph that do not occur in its code."""
    words = words_of(release)
    kinds = [name for name, one in load("models")["classes"].items() if not one["legacy"]]
    fields = {
        field for kind in kinds if "dynamic" in (facts := facts_of(release, kind=kind)).modes for field in facts.fields
    }
    return sorted(fields - words)


def main() -> int:
    """Write the file anew."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    content["unread"] = {release: unread(release) for release in served(Dialect.MINDFORMERS_PYNATIVE)}
    FILE.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
