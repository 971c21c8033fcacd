"""Test plan files for STAlloc's allocator by its rules, and its figures against the account of the trace's generator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.errors import ExitCode
from ms_tune.pools.memlog import (
    MemLogReport,
    SizeShare,
    TensorKind,
    analyse_log,
    classify_block,
)
from ms_tune.readers.memlog import HEAD, LogBlock, MemLog, read_memlog
from tests.readers.memlogs import Writer, training


class Served:
    """The allocator with a plan file: it counts allocations above 512 bytes, and starts again after the last one."""

    def __init__(self, text: str) -> None:
        first, head, *rows = text.splitlines()
        assert not first
        self.allocated, self.reserved, self.once, again, self.small = map(int, head.split())
        self.rows = [tuple(map(int, row.split())) for row in rows]
        assert len(self.rows) == self.once + again
        self.turn, self.missed = 0, 0
        self.live: dict[str, tuple[int, int]] = {}

    def allocate(self, pointer: str, size: int) -> None:
        if self.turn == len(self.rows):
            self.turn = self.once
        offset, planned = self.rows[self.turn]
        self.turn += 1
        if offset == -1 or planned != size:
            self.missed += 1
            return
        end = offset + size
        assert offset % 512 == 0
        assert end <= self.reserved
        assert all(end <= begin or until <= offset for begin, until in self.live.values())
        self.live[pointer] = (offset, end)

    def run(self, text: str) -> Served:
        for line in text.partition("Iteration Index : end")[0].splitlines():
            words = line.split()
            if words[0] in {"0", "1"} and len(words) == 4 and int(words[2]) > 512:
                if words[0] == "1":
                    self.allocate(words[1], int(words[2]))
                else:
                    self.live.pop(words[1], None)
        return self


def without_layers(writer: Writer) -> str:
    return "".join(f"{line}\n" for line in writer.lines if " Layer : " not in line)


def repeated(seed: int, iterations: int) -> Writer:
    """Return equal iterations, except for permanent blocks of the first one."""
    plain = training(seed, iterations=2)
    marks = [place for place, line in enumerate(plain.lines) if line.startswith("Iteration Index")]
    log = Writer(plain.lines[: marks[1]])
    step = plain.lines[marks[1] + 1 : marks[2]]
    foreign = _released_before(step)
    for number in range(1, iterations):
        log.lines += [f"Iteration Index : {number}"]
        # Each makes a block that the next one releases at its beginning, and one that it releases after the next one's.
        early, late = f"{0x100 + number % 2:#x}", f"{0x200 + number % 2:#x}"
        last_early, last_late = f"{0x101 - number % 2:#x}", f"{0x201 - number % 2:#x}"
        log.lines += [f"0 {last_early} 5000 0"] if number > 1 else []
        log.lines += [line for line in step if "0x" not in line or line.split()[1] not in foreign]
        log.lines += [f"1 {early} 5000 0", f"1 {late} 7000 0"]
        log.lines += [f"0 {last_late} 7000 0"] if number > 1 else []
    log.lines.append("Iteration Index : end")
    return log


def _released_before(step: list[str]) -> set[str]:
    """Return pointers that a step releases without allocating them: valid in the first step only."""
    made = {line.split()[1] for line in step if line.startswith("1 0x")}
    return {line.split()[1] for line in step if line.startswith("0 0x")} - made


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alike", [True, False])
def test_a_run_is_served_by_the_plan(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, alike: bool
) -> None:
    text = without_layers(repeated(seed, 5) if alike else training(seed, iterations=4))
    (tmp_path / "mem_log_dev3.txt").write_text(text, encoding="utf-8")
    arguments = ["memory", "import-memlog", str(tmp_path), "--stalloc", str(tmp_path / "case"), "--json"]
    assert main(arguments) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)["devices"][0]["stalloc_plan"]
    plan = tmp_path / "case" / "output" / "plan" / "dev_3.txt"
    served = Served(plan.read_text(encoding="utf-8")).run(text)
    assert (found["reserved_bytes"], found["allocations"]) == (served.reserved, len(served.rows))
    assert served.small == 512
    if alike:
        assert found["later_of_other_size"] == 0
        assert found["without_place"] == 1
        assert served.missed == 4  # blocks that are still live when their turn comes again
        assert found["later_allocations"] == 3 * (len(served.rows) - served.once)
    else:  # its sizes are drawn again in each iteration
        assert found["later_of_other_size"] <= found["later_allocations"]
        assert served.missed >= found["later_of_other_size"]
    layers = tmp_path / "case" / "output" / "activations_memlog" / "dynamic_intervals"
    assert (layers / "dev3_cross_interval_spare_addr.txt").read_text(encoding="utf-8") == "0 0\n"
    assert (layers / "dev3_intra_interval_spare_addr.txt").is_file()
    assert main(arguments) == ExitCode.USAGE
    assert main([*arguments, "--force"]) == ExitCode.OK


def test_what_no_plan_can_be_made_of_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mem_log_dev0.txt"
    arguments = ["memory", "import-memlog", str(path), "--stalloc", str(tmp_path / "case")]
    path.write_text(training(0).text(), encoding="utf-8")
    assert main(arguments) == ExitCode.USAGE
    assert "decoder.layers.0.mlp" in capsys.readouterr().err
    path.write_text("1 0x10 600 0\nIteration Index : 0\n1 0x20 600 0\n", encoding="utf-8")
    assert main(arguments) == ExitCode.USAGE
    assert "iterations 0 and 1" in capsys.readouterr().err
    assert not (tmp_path / "case").exists()
    path.write_text(without_layers(training(1)), encoding="utf-8")
    assert main(arguments) == ExitCode.OK
    assert "plan for STAlloc's allocator: " in capsys.readouterr().out


PLANNED = {"weights", "optimizer", "init", "saved", "temporary"}


def curve(writer: Writer, kinds: set[str]) -> list[int]:
    """Return the live bytes after every event, in units of 512 bytes rounded up, block by block."""
    live = [0] * writer.events
    for size, kind, begin, end in writer.blocks.values():
        assert isinstance(size, int)
        assert isinstance(begin, int)
        if kind in kinds:
            for tick in range(begin, writer.events if end is None else int(str(end))):
                live[tick] += (size + 511) // 512 * 512
    return live


@pytest.mark.parametrize("seed", range(5))
def test_peak_and_parts(tmp_path: Path, seed: int) -> None:
    writer = training(seed, micro_batches=1 + seed % 3)
    path = tmp_path / "mem_log_dev0.txt"
    path.write_text(writer.text(), encoding="utf-8")
    log = read_memlog(path)
    kinds = [classify_block(block, log, 0).value for block in log.blocks]
    assert kinds == [kind for _, kind, _, _ in writer.blocks.values()]

    report = analyse_log(log)
    total = curve(writer, PLANNED)
    assert report.peak == max(total)
    assert report.peak_time == total.index(max(total))
    for share in report.shares:
        own = curve(writer, {share.kind.value})
        assert (share.at_peak, share.own_peak) == (own[report.peak_time], max(own))
        assert share.blocks == kinds.count(share.kind.value)
    both = curve(writer, {"saved", "temporary"})
    assert (report.activations.at_peak, report.activations.own_peak) == (both[report.peak_time], max(both))
    assert sum(share.at_peak for share in report.shares if share.kind.value in PLANNED) == report.peak


def test_torch_npu_asks_for_32_bytes_more() -> None:
    """A block of 1024 bytes uses 1024 of PyTorch's pool, and 1536 of torch_npu's."""
    log = make_log((1024, 0, None, HEAD, None))
    assert (analyse_log(log).torch_allocated, analyse_log(log, npu=True).torch_allocated) == (1024, 1536)
    assert (analyse_log(log).torch_reserved, analyse_log(log).torch_utilisation) == (2 * 2**20, 1024 / (2 * 2**20))
    nothing = SizeShare(TensorKind.SMALL, 0, 0, 0)
    assert MemLogReport(0, 0, (), nothing, 0, 0).torch_utilisation == 1


def make_log(*rows: tuple[int, int, int | None, int, int | None], phases: tuple[str, str] = ("0F", "0F")) -> MemLog:
    """Return a log of blocks: size, first and last event, first and last iteration; the last iteration of all is 2."""
    blocks = [LogBlock(size, start, end, begin, last, *phases, "") for size, start, end, begin, last in rows]
    return MemLog(**{**dict.fromkeys(MemLog._fields, 0), "blocks": blocks, "events": 10, "tail": 3})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "begin", "end", "phases", "kind"),
    [
        (512, HEAD, None, ("", ""), TensorKind.SMALL),
        (513, HEAD, None, ("", ""), TensorKind.WEIGHTS),
        (513, HEAD, 3, ("", ""), TensorKind.WEIGHTS),
        (513, HEAD, HEAD, ("", ""), TensorKind.INIT),
        (513, HEAD, 1, ("", ""), TensorKind.UNRELEASED),
        (513, 0, None, ("", ""), TensorKind.OPTIMIZER),
        (513, 0, 3, ("", ""), TensorKind.OPTIMIZER),
        (513, 1, None, ("0F", ""), TensorKind.SAVED),
        (513, 1, 1, ("0F", "0F"), TensorKind.TEMPORARY),
        (513, 1, 1, ("0F", "0B"), TensorKind.SAVED),
        (513, 1, 2, ("0F", "0F"), TensorKind.SAVED),
        (513, 0, 0, ("0F", "0F"), TensorKind.TEMPORARY),
    ],
)
def test_the_kind_of_a_block(size: int, begin: int, end: int | None, phases: tuple[str, str], kind: TensorKind) -> None:
    log = make_log((size, 0, None, begin, end), phases=phases)
    assert classify_block(log.blocks[0], log, 0) is kind
