"""Test ``ms-tune dryrun`` with several stages and variants, from arguments to output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ms_tune.cli import dryrun_modes
from ms_tune.cli.main import main
from tests.dryrun import fakes
from tests.dryrun.configs import MINDFORMERS, edited
from tests.dryrun.fakes import GIB, layered_child

if TYPE_CHECKING:
    Run = Callable[..., tuple[int, str, str]]

UNSET = ("LC_ALL", "LC_MESSAGES", "LANG", "FORCE_COLOR", "NO_COLOR", "MS_ALLOC_CONF", "MS_SIMULATION_LEVEL", "COLUMNS")


@pytest.fixture
def ms_tune(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    even = edited(MINDFORMERS, "model.model_config.offset", 0)
    Path("config.yaml").write_text(yaml.safe_dump(even), encoding="utf-8")
    fakes.install(monkeypatch, tmp_path, layered_child(last=GIB), mindformers=True)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["dryrun", *arguments])
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


def table(out: str, first: str) -> list[list[str]]:
    """Return the rows of the table whose first column has this name."""
    lines = out.splitlines()
    begin = next(place for place, line in enumerate(lines) if line.split()[:1] == [first])
    rows = []
    for line in lines[begin + 2 :]:
        if not line.strip() or not line.split()[0].isdigit():
            break
        rows.append(line.split())
    return rows


def island(page: str) -> dict[str, Any]:
    """Return the data of a page for the browser."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data: dict[str, Any] = json.loads(text)
    return data


def cells(page: str) -> list[list[str]]:
    """Return the cells of the theory table, row by row."""
    (section,) = re.findall(r'<section lang="en">.*?</section>', page, re.DOTALL)
    rows = re.findall(r"<tr>(<td.*?)</tr>", section, re.DOTALL)
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]


@pytest.mark.slow
def test_stages_are_shown_with_the_worst_first(monkeypatch: pytest.MonkeyPatch, ms_tune: Run) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    code, out, _ = ms_tune("--layers", "4", "-v", "config.yaml")
    assert code == 0
    rows = table(out, "stage")
    assert [row[:3] for row in rows] == [
        ["3", "24", "16"],
        ["0", "0", "16"],
        ["1", "8", "16"],
        ["2", "16", "16"],
    ]
    # 1 GiB, an eighth for each of sixteen layers, and the last stage's head
    assert [(row[8], row[10]) for row in rows] == [("4.00", "fits"), *[("3.00", "fits")] * 3]
    assert "Stages in GiB, extrapolated from 4 and 5 layers:" in out
    assert re.search(r"^Sample run: stage 3, rank 24, 4 of 16 layers", out, re.MULTILINE)
    assert re.search(r"^  peak +2\.50 GiB$", out, re.MULTILINE)
    assert "Imbalance: stage 0 needs 1.00 GiB (25%) less than stage 3" in out


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["80", "140"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_screen_begins_with_the_verdict_and_has_twelve_lines(
    monkeypatch: pytest.MonkeyPatch, ms_tune: Run, language: str, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = ms_tune("--layers", "4", "--lang", language, "config.yaml")[1].splitlines()
    assert len(lines) <= 12
    assert lines[0].startswith("memory: fits. Stage 3 needs" if language == "en" else "结论：显存充足。阶段 3 需要")
    (verdict,) = ms_tune("--layers", "4", "--lang", language, "--quiet", "config.yaml")[1].splitlines()
    assert verdict.startswith(lines[0])  # which may be folded


@pytest.mark.slow
def test_every_row_fits_the_width_of_a_file(ms_tune: Run) -> None:
    out = ms_tune("--layers", "4", "-v", "config.yaml")[1]
    assert "…" not in "".join(line for line in out.splitlines() if line[:6].strip().isdigit())
    assert max(len(line) for line in out.splitlines() if re.match(r" +\d+ +\d+ ", line)) <= 100


def test_a_max_device_memory_that_the_chip_does_not_have_is_refused_before_anything_runs(
    ms_tune: Run,
) -> None:
    code, out, err = ms_tune("--layers", "4", "--chip", "910B4", "config.yaml")
    assert (code, out) == (2, "")
    assert "MindSpore would reject max_device_memory 58.0 GiB from the config" in err
    assert "--set context.max_device_memory=27GB" in err
    assert not Path("ms-tune-runs").exists()


@pytest.mark.slow
def test_a_stage_that_does_not_fit_decides(ms_tune: Run) -> None:
    code, out, _ = ms_tune("--layers", "4", "--set", "context.max_device_memory=3GB", "config.yaml")
    assert code == 1
    assert re.search(r"^ +3 +16 .* exceeds the limit", out, re.MULTILINE)
    assert out.splitlines()[-1] == "next: ms-tune fit config.yaml"


@pytest.mark.slow
def test_json_has_every_stage_and_the_worst_on_top(ms_tune: Run) -> None:
    code, out, _ = ms_tune("--layers", "4", "--json", "config.yaml")
    result = json.loads(out)
    assert code == 0
    assert (result["stage"], result["rank"], result["peak_bytes"]) == (3, 24, int(2.5 * GIB))
    assert (result["verdict"], result["verdict_about"]) == ("fits", "extrapolated_peak_bytes")
    assert [stage["stage"] for stage in result["stages"]] == [0, 1, 2, 3]
    for stage in result["stages"]:
        head = GIB if stage["stage"] == 3 else 0
        assert stage["extrapolated_peak_bytes"] == 3 * GIB + head
        assert sum(stage["extrapolated_categories_at_peak"].values()) == stage["extrapolated_peak_bytes"]
        assert sum(stage["categories_at_peak"].values()) == stage["peak_bytes"]
        assert (stage["layers"], stage["full_layers"], stage["extrapolated_from_layers"]) == (4, 16, [4, 5])
        assert stage["bytes_per_layer"] == GIB // 8
    assert result["imbalance"] == 0.25
    assert json.loads((Path(result["run"]) / "report.json").read_text("utf-8")) == result


def test_progress_names_each_process(monkeypatch: pytest.MonkeyPatch, ms_tune: Run) -> None:
    monkeypatch.setattr("ms_tune.cli.output._SILENCE", 0.0)
    err = ms_tune("--layers", "4", "--stages", "0,3", "config.yaml")[2]
    for stage in (0, 3):
        for layers in (4, 5):
            assert f"stage {stage}, {layers} layers: done in" in err


@pytest.mark.slow
def test_compiling_only_is_reported(ms_tune: Run) -> None:
    code, out, _ = ms_tune("--layers", "4", "--level", "0", "--no-extrapolate", "config.yaml")
    assert code == 0
    assert out.startswith("Compiled 4 stages. ")
    assert "peak" not in out
    result = json.loads(ms_tune("--layers", "4", "--level", "0", "--no-extrapolate", "--json", "config.yaml")[1])
    assert (result["simulation_level"], result["peak_bytes"], result["verdict"], result["stages"]) == (
        0,
        None,
        None,
        [],
    )


@pytest.mark.parametrize("level", ["2", "3"])
def test_levels_that_need_a_device_are_refused_without_one(ms_tune: Run, level: str) -> None:
    code, out, err = ms_tune("--layers", "4", "--level", level, "config.yaml")
    assert (code, out) == (2, "")
    assert f"simulation level {level} requires an NPU" in err
    assert not Path("ms-tune-runs").exists()


class TestDerivedStage:
    """Sixteen layers from runs with four and five: one job for ``memory``, too."""

    @pytest.fixture
    def run(self, ms_tune: Run) -> Path:
        ms_tune("--layers", "4", "--stage", "3", "--run-dir", "run", "config.yaml")
        return Path("run")

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("language", "said"), [("en", "16 layers, extrapolated"), ("zh", "共 16 层，由 4 和 5 层的运行外推")]
    )
    def test_memory_shows_the_whole_stage(
        self, run: Path, capsys: pytest.CaptureFixture[str], language: str, said: str
    ) -> None:
        assert main(["memory", str(run), "--lang", language]) == 0
        out = capsys.readouterr().out
        assert said in out
        assert "4.00 GiB" in out
        assert "2.50 GiB" not in out
        main(["memory", str(run), "--json"])
        report = json.loads(capsys.readouterr().out)
        assert (report["peak_bytes"], report["layers"], report["extrapolated_from_layers"]) == (4 * GIB, 16, [4, 5])
        assert sum(report["categories_at_peak"].values()) == 4 * GIB

    def test_so_does_the_page(self, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        main(["memory", str(run), "--html", "page.html"])
        capsys.readouterr()
        (rank,) = island(Path("page.html").read_text("utf-8"))["ranks"]
        assert rank["peak_bytes"] == 4 * GIB
        assert rank["about"]["en"] == "All 16 layers of the stage, extrapolated from runs with 4 and 5 layers."

    def test_so_does_the_page_of_dryrun(self, ms_tune: Run) -> None:
        ms_tune("--layers", "4", "--stage", "3", "--html", "page.html", "config.yaml")
        page = Path("page.html").read_text("utf-8")
        (rank,) = island(page)["ranks"]
        assert (rank["peak_bytes"], rank["extrapolated_from_layers"]) == (4 * GIB, [4, 5])
        assert "Measured at the peak of the sample runs" in page

    def test_without_a_replay_the_sample_is_headed_as_such(self, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        kept = run / "judged.json"
        kept.write_text(kept.read_text("utf-8").replace('"replayed": true', '"replayed": false'), encoding="utf-8")
        main(["memory", str(run)])
        assert "Sample run: 4 of 16 layers" in capsys.readouterr().out
        main(["memory", str(run), "--json"])
        report = json.loads(capsys.readouterr().out)
        assert (report["layers"], report["full_layers"], report["extrapolated_from_layers"]) == (4, 16, None)
        assert report["remedies_scaled_from_layers"] == [4, 5]


class TestSweep:
    SWEEP = ("--layers", "4", "--stage", "0", "--sweep", "model.model_config.num_hidden_layers=64,32,-1")

    @pytest.mark.slow
    def test_variants_are_shown_side_by_side(self, ms_tune: Run) -> None:
        code, out, _ = ms_tune(*self.SWEEP, "config.yaml")
        assert code == 2  # one stage failed
        assert "3 variants" in out
        assert "variant 3 failed: " in out
        text = " ".join(out.split())
        assert "3.00" in text  # 16 layers
        assert "2.00" in text  # 8 layers
        assert "−1.00 GiB" in text

    @pytest.mark.slow
    def test_what_all_variants_share_is_reported_once(self, ms_tune: Run) -> None:
        shared = "parallel_config.micro_batch_num=16"
        out = ms_tune("--set", shared, *self.SWEEP[:-1], "model.model_config.num_hidden_layers=64,32", "config.yaml")[1]
        assert out.count(shared) == 1
        assert f"Settings: {shared}\n" in out

    def test_json_has_the_whole_result_of_each(self, ms_tune: Run) -> None:
        result: dict[str, Any] = json.loads(ms_tune(*self.SWEEP, "--json", "config.yaml")[1])
        first, second, third = result["variants"]
        assert first["settings"] == {"model.model_config.num_hidden_layers": "64"}
        assert first["result"]["extrapolated_peak_bytes"] == 3 * GIB
        assert second["result"]["extrapolated_peak_bytes"] == 2 * GIB
        assert (third["result"], third["error"] is not None) == (None, True)

    def test_a_slip_in_the_path_is_answered_with_what_was_meant(self, ms_tune: Run) -> None:
        code, _, err = ms_tune("--set", "model.model_config.num_hiden_layers=4", "config.yaml")
        assert code == 2
        assert "did you mean model.model_config.num_hidden_layers?" in err


class TestPage:
    @pytest.mark.slow
    def test_it_has_every_stage_with_the_worst_first(self, ms_tune: Run) -> None:
        code, _, err = ms_tune("--layers", "4", "--no-extrapolate", "--html", "report.html", "config.yaml")
        assert code == 0
        assert "report.html" in err
        page = Path("report.html").read_text("utf-8")
        data = island(page)
        assert data["worst"] == 0
        assert [(rank["stage"], rank["rank"]) for rank in data["ranks"]] == [(3, 24), (0, 0), (1, 8), (2, 16)]
        assert [rank["peak_bytes"] for rank in data["ranks"]] == [2 * GIB + GIB // 2, *[GIB + GIB // 2] * 3]
        assert all(rank["blocks"] for rank in data["ranks"])
        assert cells(page) == [
            [stage, rank, "", "", "", "expected: unknown"]
            for stage, rank in (("3", "24"), ("0", "0"), ("1", "8"), ("2", "16"))
        ]

    @pytest.mark.slow
    def test_of_very_many_ranks_the_worst_are_shown(self, ms_tune: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dryrun_modes, "_MOST_RANKS", 2)
        err = ms_tune("--layers", "4", "--html", "report.html", "config.yaml")[2]
        assert "the page shows the 2 worst ranks; 2 more are in the run folder" in err
        assert [rank["stage"] for rank in island(Path("report.html").read_text("utf-8"))["ranks"]] == [3, 0]

    @pytest.mark.slow
    def test_it_is_not_overwritten(self, ms_tune: Run) -> None:
        Path("report.html").write_text("mine", encoding="utf-8")
        assert ms_tune("--layers", "4", "--html", "report.html", "config.yaml")[0] == 2
        assert ms_tune("--layers", "4", "--html", "report.html", "--force", "config.yaml")[0] == 0
        assert Path("report.html").read_text("utf-8") != "mine"

    @pytest.mark.parametrize(
        ("place", "said"),
        [
            ("nowhere/report.html", "mkdir -p nowhere"),
            ("config.yaml/report.html", "config.yaml/report.html: cannot write"),
        ],
    )
    def test_a_place_that_cannot_be_written_is_reported_before_anything_runs(
        self, ms_tune: Run, place: str, said: str
    ) -> None:
        code, out, err = ms_tune("--layers", "4", "--html", place, "config.yaml")
        assert (code, out) == (2, "")
        assert said in err
        assert not Path("ms-tune-runs").exists()

    @pytest.mark.slow
    def test_without_traces_there_is_none_and_that_is_reported(self, ms_tune: Run) -> None:
        code, _, err = ms_tune("--layers", "4", "--level", "0", "--html", "report.html", "config.yaml")
        assert code == 0
        assert "warning: report.html was not written" in err
        assert not Path("report.html").exists()

    @pytest.mark.parametrize(
        "options", [("--sweep", "parallel_config.micro_batch_num=4,8"), ("--compare-real", "elsewhere")]
    )
    def test_several_runs_are_refused_before_anything_runs(self, ms_tune: Run, options: tuple[str, str]) -> None:
        code, out, err = ms_tune(*options, "--html", "report.html", "config.yaml")
        assert (code, out) == (2, "")
        assert f"cannot be used with {options[0]}" in err
        assert not Path("ms-tune-runs").exists()
