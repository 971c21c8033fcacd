"""Build MindFormers' ``TransformerConfig`` of one release with given fields, as a separate process.

Run with the folder of an unpacked wheel first on the path. Each line of the input is ``[class, fields]``; each line of the
output is null, or ``[exception, text, "FILE:LINE "]``; the first line of all is the defaults of the classes' fields.
"""

from __future__ import annotations

import dataclasses
import io
import json
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

_KINDS = ("TransformerConfig", "MLATransformerConfig")


def default(field: dataclasses.Field[Any]) -> object:
    """Return a default that is a plain value, and null otherwise."""
    value = field.default
    return value if isinstance(value, int | float | str) else None


def answer(kind: Any, values: dict[str, Any]) -> list[str] | None:  # noqa: ANN401 - MindFormers has no types
    """Return the refusal; None if the class is built."""
    known = {one.name for one in dataclasses.fields(kind)}
    try:
        kind(**{name: value for name, value in values.items() if name in known})
    except Exception as error:  # noqa: BLE001 - whatever stops
        last = traceback.extract_tb(error.__traceback__)[-1]
        return [type(error).__name__, str(error), f"{Path(last.filename).name}:{last.lineno} "]
    return None


def main() -> None:
    """Answer each line."""
    trees: Any = import_module("make_trees")  # the folder of this file is on the path
    sys.meta_path.insert(0, trees._Finder())
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        module: Any = import_module("mindformers.parallel_core.transformer_config")
    kinds = {name: getattr(module, name) for name in _KINDS}
    fields = {name: {one.name: default(one) for one in dataclasses.fields(kind)} for name, kind in kinds.items()}
    print(f"@{json.dumps(fields)}")  # noqa: T201 - read by the parent process
    for line in sys.stdin:
        name, values = json.loads(line)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            found = answer(kinds[name], values)
        print(f"@{json.dumps(found)}")  # noqa: T201 - as above


if __name__ == "__main__":
    main()
