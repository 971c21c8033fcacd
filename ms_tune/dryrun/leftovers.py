"""What MindSpore leaves in the working folder of a command goes to the run folder: the user's folder stays as it was.

``offload``, ``execute_order`` and, once communication is initialised, ``rank_N`` with more of the same (MindSpore 2.7 to 2.10
write them to the working folder and cannot be told another place).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_OURS = ("offload", "execute_order", "om", "kernel_meta", "graph_ir_validate_failed")
_NAME = re.compile(rf"rank_\d{{1,9}}|{'|'.join(_OURS)}")


def names_in(folder: Path) -> frozenset[str]:
    """What a folder holds that could be MindSpore's."""
    with contextlib.suppress(OSError):
        return frozenset(name for name in os.listdir(folder) if _NAME.fullmatch(name))  # noqa: PTH208 - names are enough
    return frozenset()


def collect(working_folder: Path, before: frozenset[str], run_folder: Path) -> None:
    """Move what came while the command ran, as far as it is MindSpore's, beside the trace of its rank.

    Args:
        working_folder: Where the command ran.
        before: What was there before it, by :func:`names_in`.
        run_folder: Where the traces are.
    """
    for name in sorted(names_in(working_folder) - before):
        path = working_folder / name
        with contextlib.suppress(OSError):
            if path.is_symlink() or not path.is_dir():
                continue
            if name in _OURS:
                _move(path, _beside(run_folder, None) / name)
            elif set(os.listdir(path)) <= set(_OURS):  # noqa: PTH208 - names are enough
                for part in sorted(path.iterdir()):
                    _move(part, _beside(run_folder, name) / part.name)
                path.rmdir()


def _move(path: Path, aim: Path) -> None:
    if not any(path.iterdir()):
        path.rmdir()
    elif not aim.exists():
        shutil.move(path, aim)


def _beside(run_folder: Path, rank: str | None) -> Path:
    """The folder of the trace of a rank, or of the only one there is; else the rank's folder, or the run folder."""
    traces = [path.parent for path in sorted(run_folder.rglob("memory_block.csv"))]
    own = [folder for folder in traces if rank is None or rank in (folder.name, folder.parent.name)]
    if len(own) == 1 or (rank is not None and own):
        return own[0]
    place = run_folder / rank if rank is not None else run_folder
    place.mkdir(exist_ok=True)
    return place
