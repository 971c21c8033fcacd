"""Variables that MindSpore's tracker and its statistics go by, which a program may set for itself, before its imports or after them.

MindSpore reads some of them when the device is used first (2.9), so that ``os.environ["MS_ALLOC_CONF"] = ...`` behind the import would
turn the tracker off. What the program sets counts as before, but for what ms-tune reads.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_ALLOCATOR = "MS_ALLOC_CONF"
_TRACKER = ("memory_tracker:", "memory_tracker_path:")
_WARNINGS = "2"  # of GLOG_v: the statistics at exit are one
_NEEDED: dict[str, Callable[[str], str]] = {
    "MS_MEMORY_STATISTIC": lambda _: "1",
    "GLOG_v": lambda value: value if value in {"0", "1", _WARNINGS} else _WARNINGS,
}


def hold(tracker_path: str) -> None:
    """Set what is needed, and keep it whatever the program sets.

    Args:
        tracker_path: Where the tracker writes.
    """
    needed: dict[str, Callable[[str], str]] = {**_NEEDED, _ALLOCATOR: functools.partial(_with_tracker, tracker_path)}
    for name, of in needed.items():
        os.environ[name] = of(os.environ.get(name, ""))
    os.environ.pop("MS_SUBMODULE_LOG_v", None)  # a module's own level would hide the statistics
    put: Any = os.putenv
    unset: Any = os.unsetenv

    def put_needed(name: Any, value: Any) -> None:  # noqa: ANN401 - text or bytes
        of = needed.get(os.fsdecode(name))
        put(name, of(os.fsdecode(value)) if of is not None else value)

    def unset_unneeded(name: Any) -> None:  # noqa: ANN401 - as above
        of = needed.get(os.fsdecode(name))
        if of is None:
            unset(name)
        else:
            put(name, of(""))

    os.putenv = put_needed  # what os.environ calls
    os.unsetenv = unset_unneeded


def _with_tracker(path: str, value: str) -> str:
    kept = [setting for setting in value.split(",") if setting and not setting.startswith(_TRACKER)]
    return ",".join([*kept, "memory_tracker:True", f"memory_tracker_path:{path}"])
