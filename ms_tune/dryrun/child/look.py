"""Report where a launched program's frameworks are, and, if requested, whether all its imports succeed.

Run by path with the program's own Python in a rank's environment, using only the standard library: ``python look.py
ANSWER MODULES [WORD ...]``. ANSWER is the file to write, MODULES the top-level modules to find, separated by commas.
WORDs are the program (``-m MODULE`` for a module) and its arguments: it is then imported under another name than
``__main__``, so that only its imports run.
"""

from __future__ import annotations

import importlib.util
import json
import runpy
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

_NAME = "__ms_tune_look__"


def main(answer: str, modules: str, words: Sequence[str]) -> None:
    """Find the modules, write the answer, then import the program."""
    if sys.path and Path(sys.path[0]) == Path(__file__).parent:
        del sys.path[0]
    module = words[:1] == ["-m"]
    program, *arguments = words[1:] if module else words or [""]
    if words:
        sys.path.insert(0, "" if module else str(Path(program).resolve().parent))
    found = {name: list(_folders_of(name)) for name in modules.split(",")}
    facts = {"python": sys.executable, "version": sys.version.partition(" ")[0], "folders": found}
    Path(answer).write_text(json.dumps(facts), encoding="utf-8")
    if not words:
        return
    sys.argv = [program, *arguments]
    if module:
        runpy.run_module(program, run_name=_NAME, alter_sys=True)
    else:
        runpy.run_path(program, run_name=_NAME)


def _folders_of(module: str) -> Iterable[str]:
    # Return the folders of a top-level package; several for a package without ``__init__.py``.
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return ()
    if spec is None:
        return ()
    if spec.submodule_search_locations is None:
        return (spec.origin,) if spec.origin else ()
    return tuple(spec.submodule_search_locations)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
