"""What a launched program would find: where its frameworks lie, and, if asked, whether all that it imports can be imported.

Started by its path with the program's own Python in a rank's environment, with the standard library alone:
``python look.py ANSWER MODULES [WORD ...]``. ANSWER is the file that is written, MODULES the top-level modules to be
looked for, joined by commas. WORDs are the program (``-m MODULE`` for one) and its arguments: it is then imported under
another name than ``__main__``, so that nothing of it runs but its imports.
"""

from __future__ import annotations

import importlib.util
import json
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NAME = "__ms_tune_look__"


def main(answer: str, modules: str, words: Sequence[str]) -> None:
    """Look, write the answer, then import the program."""
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
    # Where a top-level package lies; more than one folder for a package without a file of its own.
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
