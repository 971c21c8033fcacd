"""Which communication groups a simulated process made, as MindSpore's log tells.

MindSpore 2.7 to 2.10 log each one as a warning (``collective_manager.cc``, ``InitializeDummyCommLib`` and
``CreateSimulationGroup``), whether or not anything ever runs through it and whoever asks for it: the program, its framework, or
the compiler that splits a graph over ranks. Other ranks' groups are logged, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

WORLD = "hccl_world_group"
_SAYS = "dummy co"
_PROCESS = re.compile(r"\((?P<pid>\d{1,10})[,:]")
_WORLD_MADE = re.compile(r"Initializing dummy collective communication with rank size: (\d{1,9}), rank id: (\d{1,9})\b")
# Ranks are written "{0, 2}", more than about ten "{[0]:{0}, [1]:{2}}"; a line of some thousands is cut.
_GROUP_MADE = re.compile(
    r"Create dummy communication group with group name: (?P<name>.{1,500}?), group ranks: [^{]{0,40}\{(?P<ranks>[^.]*)(?P<end>\.)?"
)
_RANK = re.compile(r"(?<!\[)\b\d{1,9}\b(?!\])")
_ON_HOST = "mccl_"  # how groups of the backend "mccl", which is the CPU's, are named (mint.distributed.new_group)
_MOST_GROUPS = 10_000  # of all processes of a log


@dataclass(slots=True)
class ProcessGroups:
    """The groups of one process."""

    rank: int  # the rank that it runs as
    # Those on the device in which it exchanges something with others, the world's included: how many ranks each has, at
    # least, by its name.
    own: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class GroupLines:
    """The processes met so far, by their ids: several may write to one log."""

    found: dict[str, ProcessGroups] = field(default_factory=dict)
    count: int = 0

    def take(self, line: str) -> None:
        """Read a line."""
        if _SAYS not in line or self.count == _MOST_GROUPS:
            return
        process = _PROCESS.search(line)
        pid = process["pid"] if process else ""
        if match := _WORLD_MADE.search(line):
            self.count += 1
            size, rank = int(match[1]), int(match[2])
            self.found[pid] = ProcessGroups(rank, {WORLD: size} if size > 1 else {})
        elif pid in self.found and (match := _GROUP_MADE.search(line)) and not match["name"].startswith(_ON_HOST):
            self.count += 1
            ranks, one = set(map(int, _RANK.findall(match["ranks"]))), self.found[pid]
            is_in = one.rank in ranks or not match["end"]
            if is_in and len(ranks) > 1:
                one.own[match["name"]] = len(ranks)
