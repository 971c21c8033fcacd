"""Test the verdict about a trace: by its log, by the record of its run, or by the named device."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_tune.cli.main import main
from ms_tune.footprint.judgement import list_communicators
from ms_tune.footprint.report import MemoryRequest, analyse_memory
from ms_tune.readers.runtime_log import WORLD, CollectiveLaunch, CommunicationOrder, ProcessGroups, RuntimeLog
from ms_tune.units import GIB, MIB
from ms_tune.verdict.limit import Cap
from ms_tune.verdict.outcome import Fit, Need, UntracedNeeds
from ms_tune.verdict.run_record import FILE, RankRecord, RunRecord, to_json
from tests.readers.samples import folder

if TYPE_CHECKING:
    from ms_tune.footprint.result import RankReport


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Create a run folder with one rank."""
    rank = tmp_path / "run" / "rank_0"
    shutil.copytree(folder("asc2"), rank)
    return rank.parent


def judged(place: Path, **asked: object) -> RankReport:
    return analyse_memory(place, MemoryRequest(**asked), lambda _done, _total: None).worst  # type: ignore[arg-type] # any fields


def log(run: Path, device: int, used: int) -> None:
    """Write a log for a device with this many MiB."""
    (file,) = (path for path in (run / "rank_0").iterdir() if path.name.startswith("log"))
    text = file.read_text("utf-8")
    file.write_text(text.replace("65536M", f"{device}M").replace("61430M", f"{used}M"), encoding="utf-8")


class TestLimit:
    @pytest.mark.parametrize(
        ("device", "used", "limit", "source"),
        [
            (65536, 61430, 58166 * MIB, "verdict.limit.pool"),  # the simulator's own figure is no limit
            (65536, 59392, 58 * GIB, "verdict.limit.script"),  # set by a simulated script
            (62420, 58178, 58178 * MIB, "verdict.limit.log"),  # granted by a real device; there is no reserve
        ],
    )
    def test_what_the_log_says(self, run: Path, device: int, used: int, limit: int, source: str) -> None:
        log(run, device, used)
        verdict = judged(run).verdict
        assert verdict.limit is not None
        assert (verdict.limit.bytes, verdict.limit.source.id) == (limit, source)
        assert (verdict.reserve == ()) == (source == "verdict.limit.log")

    @pytest.mark.parametrize(("device", "used"), [(62420, 58178), (65536, 59392)])
    def test_a_named_device_judges_again_what_it_would_not_refuse(self, run: Path, device: int, used: int) -> None:
        log(run, device, used)
        verdict = judged(run, chip="910B4", reserve_bytes=GIB).verdict
        if used == 59392:
            assert verdict.outcome is None
            assert verdict.no_verdict_because is not None
            assert verdict.no_verdict_because.id == "verdict.limit.refused.script"
            return
        assert verdict.limit is not None
        assert verdict.limit.bytes == 27966 * MIB
        assert {item.name: item.bytes for item in verdict.reserve} == {"user": GIB}


class TestWhatTheProgramAsksFor:
    """In simulation MindSpore 2.9 does not know the chip, and its statistics never exceed 32 GiB."""

    @pytest.mark.parametrize("place", ["rank_0", "."])
    def test_it_goes_before_what_the_statistics_say(self, run: Path, place: str) -> None:
        log(run, 65536, 61430)
        (run / FILE).write_text(json.dumps(to_json(RunRecord(requested_bytes={place: 40 * GIB}))), encoding="utf-8")
        limit = judged(run).verdict.limit
        assert limit is not None
        assert (limit.bytes, limit.source.id) == (40 * GIB, "verdict.limit.script")


class TestKept:
    def keep(self, run: Path, **rank: object) -> None:
        kept = RunRecord(chip="A3", ranks={"rank_0": RankRecord(**rank)})  # type: ignore[arg-type] # any fields
        (run / FILE).write_text(json.dumps(to_json(kept)), encoding="utf-8")

    def test_the_runs_own_terms_count(self, run: Path) -> None:
        self.keep(run, outside=UntracedNeeds(communicators=20, reserve_bytes=GIB))
        verdict = judged(run).verdict
        assert verdict.limit is not None
        assert verdict.limit.bytes == 58466 * MIB
        assert {item.name: item.bytes // MIB for item in verdict.reserve} == {
            "communication": 20 * 400 - (62375 - 58466),
            "workspaces": 454,
            "user": 1024,
        }

    def test_the_verdict_is_about_the_whole_stage(self, run: Path) -> None:
        self.keep(run, run_layers=2, stage_layers=32, stage_need=Need.of_derived_stage(60 * GIB, [(GIB, GIB)]))
        report = judged(run)
        assert report.curve.peak_bytes < GIB
        assert report.verdict.outcome is Fit.DOES_NOT_FIT
        assert report.sample == (2, 32)
        assert "does-not-fit" in {finding.name for finding in report.findings}

    def test_all_other_figures_are_marked_as_those_of_the_sample(
        self, run: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert judged(run).sample is None
        self.keep(run, run_layers=2, stage_layers=32, stage_need=Need.of_derived_stage(60 * GIB, [(GIB, GIB)]))
        for arguments in ((), ("-v",)):
            main(["memory", str(run), *arguments])
            assert "\nSample run: 2 of 32 layers of the stage. " in capsys.readouterr().out

    def test_a_stage_that_was_not_derived_has_none(self, run: Path) -> None:
        self.keep(run, run_layers=2, stage_layers=32)
        verdict = judged(run).verdict
        assert verdict.outcome is None
        assert "2 layers" in str(verdict.no_verdict_because)

    def test_the_configs_limit_counts_there_too(self, run: Path) -> None:
        self.keep(run, cap_bytes=20 * GIB, cap=Cap.CONFIG)
        limit = judged(run).verdict.limit
        assert limit is not None
        assert limit.bytes == 20 * GIB

    @pytest.mark.parametrize("text", ["", "[]", "{", '{"version": 1, "ranks": 3}'])
    def test_a_spoilt_file_is_as_none(self, run: Path, text: str) -> None:
        (run / FILE).write_text(text, encoding="utf-8")
        assert judged(run).verdict.outcome is Fit.FITS


class TestDoubts:
    def test_a_trace_that_was_cut_has_no_verdict(self, run: Path) -> None:
        """``ulimit -f`` and a full disk leave such a trace: 2.40 GiB of 5,174 MiB were reported to fit."""
        file = run / "rank_0" / "memory_block.csv"
        text = file.read_bytes()
        file.write_bytes(text[: len(text) // 2])
        verdict = judged(run).verdict
        assert verdict.outcome is None
        assert verdict.no_verdict_because is not None

    def test_a_trace_whose_peak_is_not_the_logs_has_none(self, run: Path) -> None:
        (file,) = (path for path in (run / "rank_0").iterdir() if path.name.startswith("log"))
        text = file.read_text("utf-8")
        name = "Used peak memory usage (without fragments): "
        before, _, after = text.rpartition(name)
        file.write_text(f"{before}{name}5174M\n{after.partition(chr(10))[2]}", encoding="utf-8")
        assert "5,174 MiB" in str(judged(run).verdict.no_verdict_because)


class TestCommunicators:
    def order(self, *groups: tuple[str, int]) -> CommunicationOrder:
        ops = [CollectiveLaunch(name, tuple(range(size))) for name, size in groups]
        return CommunicationOrder(tuple(ops), (), 0)

    def log(self, *processes: ProcessGroups) -> RuntimeLog:
        return RuntimeLog(None, None, processes=processes)

    def test_nothing_shows_and_none_are_two_answers(self) -> None:
        assert list_communicators(None, None, 0) is None
        assert list_communicators(None, self.log(), 0) is None
        assert list_communicators(self.order(), None, 0) == {}
        assert list_communicators(self.order(("alone", 1)), self.log(), 0) == {}
        assert list_communicators(None, self.log(ProcessGroups(0)), 0) == {}

    def test_what_is_used_needs_the_worlds_next_to_it(self) -> None:
        assert list_communicators(self.order(("tp", 2), ("tp", 2), ("dp", 4)), None, 0) == {WORLD: 0, "tp": 2, "dp": 4}

    def test_what_was_made_counts_whether_or_not_it_is_used(self) -> None:
        made = self.log(ProcessGroups(0, {WORLD: 8, "tp": 2}))
        assert list_communicators(None, made, None) == {WORLD: 8, "tp": 2}
        assert list_communicators(self.order(("tp", 2), ("pp", 4)), made, 0) == {WORLD: 8, "tp": 2, "pp": 4}

    def test_of_several_processes_it_is_the_ranks_or_else_the_one_with_most(self) -> None:
        made = self.log(
            ProcessGroups(0, {WORLD: 2}), ProcessGroups(1, {WORLD: 2, "a": 2}), ProcessGroups(2, {WORLD: 2})
        )
        assert list_communicators(None, made, 0) == {WORLD: 2}
        assert list_communicators(None, made, 7) == {WORLD: 2, "a": 2}

    def test_a_simulated_trace_is_judged_by_its_log(self, run: Path) -> None:
        (file,) = (path for path in (run / "rank_0").iterdir() if path.name.startswith("log"))
        line = "[WARNING] ME(7,7f,python):2026-11-22-18:33:48.225.402 [a.cc:1] F] "
        made = "".join(
            f"{line}Create dummy communication group with group name: g{number}, group ranks: [const vector]{{0, 1}}. Real\n"
            for number in range(10)
        )
        begin = f"{line}Initializing dummy collective communication with rank size: 2, rank id: 0, local rank id: 0.\n"
        file.write_text(begin + made + file.read_text("utf-8"), encoding="utf-8")
        item = judged(run).verdict.reserve[0]
        assert (item.name, item.bytes) == ("communication", (11 * 400 - 3889) * MIB)
        assert "g9 (2)" in str(item.why)


def test_a_pool_of_the_programs_own_is_why_there_is_no_verdict(run: Path) -> None:
    """As ``ms.runtime.use_mem_pool`` leaves it (MindSpore 2.9): blocks in the trace, and none in the log."""
    (file,) = (path for path in (run / "rank_0").iterdir() if path.name.startswith("log"))
    text = file.read_text("utf-8")
    file.write_text(text.replace("(without fragments): 2M", "(without fragments): 0M"), encoding="utf-8")
    reason = judged(run).verdict.no_verdict_because
    assert reason is not None
    assert reason.id == "verdict.none.own-pool"
