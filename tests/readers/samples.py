"""Provide real tracker output of simulated runs: small files unchanged, larger ones packed (see data/README.md)."""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path

from ms_tune.readers.memory_block import Block, Frame
from tests.readers.rows import BlockTrace, read_memory_block
from tests.scratch import new_folder

SMALL = Path(__file__).parents[1] / "data" / "memory_tracker"
SMALL_RUNS = ("asc2", "asc_comm/rank_3", "asc_gO0", "nn_cnn_pynative", "over_limit", "v_simple")
# Packed runs: the folder with memory_block.csv.
LARGE_RUNS = (
    "asc_dp8/rank_3",
    "gpt",
    "llama4L_pynative_launch_blocking",
    "llama7b_pynative",
    "mindformers_qwen3_tiny_dp2tp2pp2/rank_0",
    "mindformers_qwen3_tiny_dp2tp2pp2/rank_4",
    "two_streams/rank_0",
)
# 81 MB and 97,143 rows: for readers of columns, not row by row.
LARGEST_RUN = "mindformers_qwen3_8b_dp2tp4pp4/rank_24"
MIB = 1024**2


def folder(run: str) -> Path:
    """Return the folder of a run, unpacked once if it is packed."""
    packed = SMALL / f"{run.split('/', maxsplit=1)[0]}.tar.xz"
    return (_unpack(packed) if packed.is_file() else SMALL) / run


def log_of(run: str) -> Path | None:
    """Return the log of a run, if it was stored."""
    place = folder(run)
    candidates = (place / "log", place / "log.txt", place.parent / "log", place.parent / f"{place.name}.log")
    return next((path for path in candidates if path.is_file()), None)


@cache
def trace_of(run: str) -> BlockTrace:
    """Return the trace of a run."""
    return read_memory_block(folder(run) / "memory_block.csv")


@cache
def _unpack(packed: Path) -> Path:
    unpacked = new_folder("samples")
    with tarfile.open(packed) as archive:
        if hasattr(tarfile, "data_filter"):  # from Python 3.10.12 and 3.11.4; Debian 12 has 3.11.2
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(unpacked)  # noqa: S202 - our own archive
    return unpacked


def block(  # noqa: PLR0913 - a block has that many columns
    start: int = 1,
    end: int | None = None,
    size: int = 512,
    *,
    address: int = 0x1000,
    used_after: int | None = None,
    footprint_after: int | None = None,
    pool: str = "DefaultEnhancedAscendMemoryPool",
    kind: str = "PyNativeOutput",
    task_name: str = "PyNative",
    node_name: str = "Add",
    graph_name: str = "",
    last_user_task: int | None = None,
    user_text: str = "{}",
    stack: tuple[Frame, ...] = (),
    persistent: bool = False,
) -> Block:
    """Return a block with distinct default values."""
    return Block(
        line=2,
        start=start,
        end=end,
        address=address,
        stream=0,
        pool=pool,
        size=size,
        used_after=used_after,
        footprint_after=footprint_after,
        kind=kind,
        producer_task=0,
        task_name=task_name,
        node_name=node_name,
        graph_name=graph_name,
        last_user_task=last_user_task,
        user_text=user_text,
        stack=stack,
        persistent=persistent,
        small=False,
    )


def trace(*blocks: Block) -> BlockTrace:
    """Return a trace of these blocks."""
    return BlockTrace(blocks, (), 0, (), truncated=False)
