"""Puts rows of ``memory_block.csv`` with commas in their texts back together: the tracker quotes nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXTS = ("file_name", "type", "task_name", "node_name", "user_tasks", "python_stack")  # may hold commas, or tell
_USERS = re.compile(r"(?:\{[0-9-]*\})?")
_KINDS = frozenset(
    {
        *("Weight", "ConstantValue", "PyNativeInput", "PyNativeOutput", "WorkSpace", "Kernel", "GraphOutput", "Other"),
        *("Somas", "SomasOutput", "InSideSomas", "GeConst", "GeFixed", "GeFeatureMemory"),
        *("BatchMemory", "ContinuousMemory"),
    }
)


def realigned(cells: list[str], names: tuple[str, ...], index: Mapping[str, int]) -> list[str] | None:
    """The cells of a row with surplus commas, put back together; None if it cannot be told where the commas belong.

    The stack is the usual place for commas (a path may hold any character). Else they are in the C++ file name or in
    the names; the type and the user tasks, whose looks are known, tell how many are before them.
    """
    surplus = len(cells) - len(names)
    if any(name not in index for name in _TEXTS):
        return None
    kind, users, stack = index["type"], index["user_tasks"], index["python_stack"]
    kinds = [i for i in range(kind, kind + surplus + 1) if cells[i] in _KINDS and cells[i - 1].isdigit()]
    lists = [i for i in range(users, users + surplus + 1) if cells[i].startswith("{") and _USERS.fullmatch(cells[i])]
    if not kinds and not lists and cells[kind] == "" and cells[users] == "":
        kinds, lists = [kind], [users]  # never bound: nothing to go by, and nothing but a stack that could hold commas
    if len(kinds) != 1 or (not lists and cells[users]):
        return None
    in_file, up_to_users = kinds[0] - kind, (lists[0] if lists else users) - users
    in_names = up_to_users - in_file
    if in_names < 0 or len(lists) > 1:
        return None
    if in_file:
        cells = _joined(cells, index["file_name"], in_file)
    if in_names:
        rejoined = _rejoined_names(cells, index, in_names)
        if rejoined is None:
            return None
        cells = rejoined
    return _joined(cells, stack, len(cells) - len(names))


def _rejoined_names(cells: list[str], index: Mapping[str, int], surplus: int) -> list[str] | None:
    """Put task and node name back together: the node name alone has commas, or both names end alike."""
    task, node = index["task_name"], index["node_name"]
    if cells[task] == "PyNative":
        return _joined(cells, node, surplus)
    half = surplus // 2
    task_name = ",".join(cells[task : task + half + 1])
    node_name = ",".join(cells[task + half + 1 : task + 2 * half + 2])
    if surplus % 2 or node != task + 1 or not task_name.endswith(node_name):
        return None
    return _joined(_joined(cells, task, half), node, half)


def _joined(cells: list[str], at: int, surplus: int) -> list[str]:
    return [*cells[:at], ",".join(cells[at : at + surplus + 1]), *cells[at + surplus + 1 :]]
