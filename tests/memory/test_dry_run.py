"""Files of HyperParallel's dry-runs: as columns and marks say, replayed as an allocator written here from its rules does."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from ms_tune.cli.main import main
from ms_tune.enums import MemoryCategory
from ms_tune.footprint.report import MemoryRequest, analyse_memory
from ms_tune.pools.torch_space import NPU_PADDING, TorchSettings
from ms_tune.readers.memory_block import NEVER_FREED
from tests.pools.torch_recordings import Program

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = Path(__file__).parents[2] / "examples" / "hyper_parallel"
HEADER = (
    "start_time_stamp,end_time_stamp,device_addr,stream_id,pool_type,size,actual_used_memory,actual_peak_memory,"
    "file_name,line_num,type,producer_task,task_name,node_name,graph_name,user_tasks,last_user_task,python_stack,"
    "is_persistent,is_small"
)
MIB = 2**20
Tensor = tuple[int, int, int, str, str]  # start, end, bytes, type, phase


def write_csv(folder: Path, rank: int, tensors: Sequence[Tensor], peak: int | None = None, pool: str = "Any") -> Path:
    folder.mkdir(exist_ok=True)
    lines, ticks = [HEADER], sorted({tensor[0] for tensor in tensors})
    running = {tick: sum(size for start, end, size, _, _ in tensors if start <= tick < end) for tick in ticks}
    for place, (start, end, size, kind, phase) in enumerate(tensors):
        most = peak or max(used for tick, used in running.items() if tick <= start)
        lines.append(
            f"{start},{end},{0xF00000000000 + place * 2**32:#x},0,{pool},{size},{running[start]},{most},/w/m.py,7,"
            f'{kind},{start},{phase},aten.mm.default,LM.layers.{place % 2},{{}},,"File:/w/m.py;Line:{place};Function:f",'
            f"{int(end == NEVER_FREED)},{int(size < MIB)}"
        )
    path = folder / f"rank_{rank}_memory.csv"
    path.write_text("\r\n".join(lines) + "\r\n")
    return path


def reserve(tensors: Sequence[Tensor], padding: int) -> int:
    """Return the bytes that the allocator reserves: best fit, no expandable segments; ``c10/cuda/CUDACachingAllocator.cpp``."""
    segments: list[list[list[int]]] = []  # blocks as [size, small, tensor or -1]
    frees = [(end, 0, i) for i, (_, end, _, _, _) in enumerate(tensors) if end != NEVER_FREED]
    for _, takes, i in sorted([*frees, *((tensor[0], 1, i) for i, tensor in enumerate(tensors))]):
        if not takes:
            blocks = next(blocks for blocks in segments if any(block[2] == i for block in blocks))
            place = next(at for at, block in enumerate(blocks) if block[2] == i)
            blocks[place][2] = -1
            for at in (place, place - 1):  # joined with the free neighbours
                if 0 <= at < len(blocks) - 1 and blocks[at][2] == blocks[at + 1][2] == -1:
                    blocks[at][0] += blocks.pop(at + 1)[0]
            continue
        size = max(-(-(tensors[i][2] + padding) // 512) * 512, 512)
        small = size <= MIB
        holes = [(b[0], s, at) for s, blocks in enumerate(segments) for at, b in enumerate(blocks) if b[2] == -1]
        fits = [hole for hole in holes if hole[0] >= size and segments[hole[1]][hole[2]][1] == small]
        if not fits:
            whole = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            segments.append([[whole, small, -1]])
            fits = [(whole, len(segments) - 1, 0)]
        found, segment, at = min(fits)
        if found - size >= (512 if small else MIB + 1):
            segments[segment].insert(at + 1, [found - size, small, -1])
            segments[segment][at][0] = size
        segments[segment][at][2] = i
    return sum(block[0] for blocks in segments for block in blocks)


def random_tensors(seed: int) -> list[Tensor]:
    random = Random(seed)  # noqa: S311 - sizes of a test
    found: list[Tensor] = [(0, NEVER_FREED, random.randrange(1, 9 * MIB), "Parameter", "initialization")] * 5
    for tick in range(1, 120):
        size = random.choice([random.randrange(1, MIB), random.randrange(MIB, 12 * MIB), 512 * random.randrange(1, 99)])
        end = random.choice([tick + 1, tick + random.randrange(2, 60), NEVER_FREED if tick % 9 == 0 else tick + 3])
        found.append((tick, end, size, "Activation", "forward" if tick < 60 else "backward"))
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("pool", "padding"), [("DefaultEnhancedAscendMemoryPool", 32), ("CUDALogicalMemoryPool", 0)])
def test_reserved_bytes_are_those_of_the_allocator(tmp_path: Path, seed: int, pool: str, padding: int) -> None:
    tensors = random_tensors(seed)
    rank = analyse_memory(write_csv(tmp_path, 0, tensors, pool=pool)).worst
    logical = max(sum(size for start, end, size, _, _ in tensors if start <= tick < end) for tick in range(130))
    assert (rank.curve.peak_bytes, rank.curve.footprint_bytes) == (logical, reserve(tensors, padding))


def test_categories_phases_and_bytes_without_rows(tmp_path: Path) -> None:
    tensors: list[Tensor] = [
        (0, 4, MIB, "Activation", "forward"),
        (1, NEVER_FREED, 2 * MIB, "Gradient", "backward"),
        (2, 3, 3 * MIB, "Temp", "recompute"),  # freed before the next one, of the same tick
        (3, 4, 4 * MIB, "Other", "backward"),
        (4, 5, MIB, "Buffer", "optimizer"),
    ]
    rank = analyse_memory(write_csv(tmp_path, 3, tensors, peak=100 * MIB)).worst
    assert rank.rank == 3
    assert rank.placed is not None
    assert (rank.curve.peak_bytes, rank.placed.unlisted_bytes) == (100 * MIB, 93 * MIB)
    held = {category: size // MIB for category, size in rank.peak.contents.items() if size}
    assert held == {
        MemoryCategory.ACTIVATIONS: 1,
        MemoryCategory.GRADIENTS: 2,
        MemoryCategory.CONSTANTS: 4,
        MemoryCategory.UNATTRIBUTED: 93,
    }
    peaks = {phase and phase.value: size // MIB for phase, size in rank.peak_by_phase().items()}
    assert {name: peaks[name] for name in ("forward", "backward", "recompute")} == {
        "forward": 94,
        "backward": 100,
        "recompute": 99,
    }


def test_second_step_has_the_optimizer_state(tmp_path: Path) -> None:
    tensors: list[Tensor] = [
        (0, NEVER_FREED, 20 * MIB, "Parameter", "initialization"),
        (1, 3, 30 * MIB, "Activation", "forward"),
        (2, 4, 20 * MIB, "Gradient", "backward"),
        (3, NEVER_FREED, 40 * MIB, "Optstate", "optimizer"),
    ]
    rank = analyse_memory(write_csv(tmp_path, 0, tensors)).worst
    assert rank.placed is not None
    assert rank.verdict.need is not None
    assert (rank.curve.peak_bytes, rank.placed.later_peak_bytes) == (80 * MIB, 110 * MIB)
    assert rank.verdict.need.peak_bytes == 110 * MIB


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", ["rank_0", "first_format", "rank_0/rank_0_memory.json"])
@pytest.mark.parametrize("command", [[], ["-v"], ["what-if"], ["what-if", "--chip", "A3"]])
def test_nothing_of_mindspore_is_said(name: str, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", *command, str(EXAMPLES / name)]) == 0
    said = capsys.readouterr().out
    assert "PYTORCH_NPU_ALLOC_CONF" in said
    assert not any(word in said for word in ("MindSpore", "vmm", "max_device_memory", "ms-tune fit"))


def test_ranks_of_two_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(4):
        weights = (0, NEVER_FREED, (1 + rank % 2) * 2048 * MIB, "Parameter", "initialization")
        write_csv(tmp_path / f"rank_{rank}", rank, [weights, (1, 2, MIB, "Activation", "forward")])
        report = {
            "schema_version": 3,
            "status": "ok",
            "metadata": {"world_size": 4, "parallel": {"pp": 2, "dp": 2}, "local_stage_indices": [rank % 2]},
            "memory_blocks": [],
            "limitations": ["no workspaces"],
        }
        (tmp_path / f"rank_{rank}" / f"rank_{rank}_memory.json").write_text(json.dumps(report))
    assert main(["memory", str(tmp_path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    ranks = [line[:3] for line in lines if line[:2] in (["1,", "3"], ["0,", "2"])]
    assert ranks == [["1,", "3", "1"], ["0,", "2", "0"]]
    verdict = analyse_memory(tmp_path, MemoryRequest(chip="910B4")).worst.verdict
    assert {item.name: item.bytes // MIB for item in verdict.reserve} == {
        "communication": 3 * 400,
        "workspaces": 95,
        "context": 0,
    }


def test_compared_with_a_recording_of_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = TorchSettings(padding=NPU_PADDING)
    tensors = random_tensors(1)
    program = Program(settings)
    events = [(end, 0, i) for i, (_, end, _, _, _) in enumerate(tensors) if end != NEVER_FREED]
    where: dict[int, int] = {}
    for _, takes, i in sorted([*events, *((tensor[0], 1, i) for i, tensor in enumerate(tensors))]):
        if takes:
            where[i] = program.allocate(tensors[i][2])
        else:
            program.free(where.pop(i))
    (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(program.snapshot()))
    file = write_csv(tmp_path / "dry", 0, tensors)
    main(["memory", "diff", "--json", str(file), str(tmp_path / "snapshot.pickle")])
    found = json.loads(capsys.readouterr().out)
    assert found["before"]["reserved_peak_bytes"] == found["after"]["reserved_peak_bytes"] == reserve(tensors, 32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "most"),
    [
        ("step=2 epoch=0 memory/device_max_reserved_gb=4.125 performance/step_time=0.5", 4.125 * 2**30),
        ("Memory usage step=2 global_rank=0 tp_rank=0 dp_rank=0 max_memory_reserved=777 max_memory_allocated=5", 777),
    ],
)
def test_the_rest_of_a_logged_run_is_the_reserve_of_later_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, most: float
) -> None:
    log, rest, file = tmp_path / "train.log", tmp_path / "rest.json", str(EXAMPLES / "rank_0")
    log.write_text(f"step=1 epoch=0 performance/step_time=0.5 training/total_loss=11.2\n{line}\n")
    main(["memory", "diff", "--json", file, str(log)])
    rest.write_text(capsys.readouterr().out)
    found = json.loads(rest.read_text())
    main(["memory", "what-if", "--json", file])
    replayed = json.loads(capsys.readouterr().out)["outcomes"][0]["reserved_peak_bytes"]
    assert (found["replayed_bytes"], found["rest_bytes"]) == (replayed, int(most) - replayed)
    main(["memory", "--json", file, "--reserve-from", str(rest)])
    reserve = json.loads(capsys.readouterr().out)["reserve"]
    assert reserve["measured"] == max(found["rest_bytes"], 0)
    assert "workspaces" not in reserve
    assert main(["memory", "diff", "--lang", "en", file, str(log)]) == 1
    assert ("more" if most > replayed else "less") + " than its dry-run" in " ".join(capsys.readouterr().out.split())
    log.write_text(log.read_text().replace("reserved", "other"))
    assert main(["memory", "diff", file, str(log)]) == 2
    rest.write_text('{"rest_bytes": "much"}')
    assert main(["memory", file, "--reserve-from", str(rest)]) == 2
    assert main(["memory", str(log), "--reserve-from", str(rest)]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"status": "error", "stage": "step", "error": {"type": "ValueError", "message": "no"}}, "no rows"),
        ({"status": "ok", "memory_blocks": [{"start_time_stamp": 1}]}, "lacks"),
    ],
)
def test_unreadable_json(
    tmp_path: Path, content: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rank_0.json"
    file.write_text(json.dumps({"schema_version": 2, **content}))
    assert main(["memory", str(file)]) == 2
    assert said in capsys.readouterr().err
