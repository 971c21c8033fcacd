"""Provide reports about real traces, each made once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ms_tune.footprint.report import MemoryRequest, analyse_memory
from tests.readers.samples import folder

if TYPE_CHECKING:
    from ms_tune.footprint.result import MemoryReport, RankReport

LLAMA = "llama4L_pynative_launch_blocking"
QWEN_8B = "mindformers_qwen3_8b_dp2tp4pp4"
QWEN_TINY = "mindformers_qwen3_tiny_dp2tp2pp2"


@cache
def report_of(run: str) -> MemoryReport:
    return analyse_memory(folder(run), MemoryRequest(), lambda _done, _total: None)


def rank_of(run: str) -> RankReport:
    return report_of(run).worst
