"""Test other layouts of a config: read like the framework, ranked, and tried with an invented job instead of dryruns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.cli.main import main
from ms_tune.dryrun.prepare import load_config, prepare_run
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.dryrun.task import Observer
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ExitCode, MsTuneError, RunError
from ms_tune.fit import run as engine
from ms_tune.fit import search as searching
from ms_tune.fit import verify_loop
from ms_tune.fit.job import PlannedJob, read_job
from ms_tune.fit.layouts import read_layout, split_evenly, with_layout, with_samples
from ms_tune.fit.result import ConfigFitRequest
from ms_tune.fit.search import SearchFit, SearchHooks, SearchRequest, search_layouts
from ms_tune.planning import fit as planning_fit
from ms_tune.planning import search
from ms_tune.planning.layouts import Layout
from ms_tune.planning.search import Effort
from ms_tune.planning.table import PlanLists
from ms_tune.source.yaml import parse_source
from ms_tune.text import msg
from ms_tune.units import GIB
from ms_tune.verdict.limit import device_of, limit_of
from ms_tune.verdict.outcome import Need, UntracedNeeds, judge
from tests.fit.test_table import job_of
from tests.fit.world import MIB, World
from tests.jobs import normalize_source

if TYPE_CHECKING:
    from ms_tune.dryrun.result import DryrunResult
    from ms_tune.fit.measure import Probe, RunFigures


TEMPLATES = Path(__file__).parents[2] / "yaml_templates"
OTHERS = {
    "mindspeed_ms/llama2_7b.yaml": [Layout(2, 2, 2, 1, 1, 2, 4, 4), Layout(1, 8, 1, 1, 1, 1, 2, 16), Layout(8, 1, 1, 2, 1, 1, 1, 8)],
    "mindspeed_ms/llama2_13b_vpp.yaml": [Layout(4, 2, 1, 1, 1, 1, 2, 16), Layout(1, 8, 1, 1, 1, 1, 2, 16), Layout(2, 4, 5, 1, 1, 1, 2, 16)],
    "mindformers/qwen3_32b.yaml": [Layout(8, 8, 1, 1, 1, 1, 1, 32), Layout(2, 2, 4, 1, 1, 1, 8, 4), Layout(4, 3, 1, 1, 1, 1, 2, 16)],
    "mindformers_pynative/deepseek3_1b_moe.yaml": [Layout(2, 2, 1, 1, 2, 1, 4, 16), Layout(1, 4, 2, 1, 8, 2, 8, 4)],
}  # fmt: skip


@pytest.mark.parametrize(("name", "layout"), [(name, one) for name, all_of_it in OTHERS.items() for one in all_of_it])
@pytest.mark.slow
def test_a_config_with_another_layout_is_read_as_that(name: str, layout: Layout) -> None:
    request = DryrunRequest(config=TEMPLATES / name)
    job = read_job(request)
    before = job.loaded.source.text
    there = job.loaded._replace(devices=job.loaded.devices._replace(npus=layout.devices))
    loaded = with_layout(there, layout, job.layers)
    run = prepare_run(request._replace(devices=layout.devices), loaded)
    assert read_layout(loaded, run) == layout
    plan = normalize_source(loaded.source)
    assert plan.failure is None
    assert plan.placement == tuple(map(tuple, split_evenly(job.layers, layout)))
    assert {layer.recompute.value for layer in plan.layers[: job.layers]} == {"none"}
    assert job.loaded.source.text == before
    assert loaded.source.text.partition("\n")[0] == before.partition("\n")[0]  # its comments stay


def test_what_is_left_over_of_an_even_split_avoids_the_ends() -> None:
    assert split_evenly(10, Layout(pipeline=4)) == [[2, 3, 3, 2]]
    assert split_evenly(11, Layout(pipeline=4)) == [[3, 3, 3, 2]]
    assert split_evenly(9, Layout(pipeline=2, chunks=2)) == [[3, 2], [2, 2]]


def ranked(
    folder: Path | None,
    gib: float = 24,
    **asked: Any,  # noqa: ANN401 - of the request
) -> SearchFit:
    """Return the ranking of a job of 4 stages of 8 layers on 4 devices; without a folder, that of a real model on 16."""
    path = TEMPLATES / "mindspeed_ms" / "llama2_7b.yaml"
    if folder is not None:
        path = job_of(folder, 4, 1, 32, 8).loaded.source.path
    request = DryrunRequest(config=path, device_bytes=int(gib * GIB), devices=None if folder is not None else 16)
    reported = {"free": ("dp", "tp", "pp", "vpp", "mbs"), "top": 0, **asked}
    return search_layouts(
        SearchRequest(ConfigFitRequest(request, effort=Effort.QUICK), **reported), SearchHooks(Observer())
    )


class TestRanking:
    def test_the_fastest_comes_first_and_the_present_one_is_what_100_is(self, tmp_path: Path) -> None:
        found = ranked(tmp_path)
        every = found.ranking.candidates
        assert len(every) > 10
        times = [one.estimate.step.seconds for one in every]
        assert times == sorted(times)
        assert found.now == Layout(pipeline=4, micro_batches=8)
        assert found.ranking.present is not None
        own = every[found.ranking.present]
        assert own.layout == found.now
        assert found.relative_time(own.estimate.step) == 100
        # 4 equal stages (the head aside) and 8 micro-batches: 3 of 11 turns are waiting.
        assert own.estimate.step.bubble == pytest.approx(3 / 11, abs=0.04)

    def test_the_global_batch_is_that_of_every_layout(self, tmp_path: Path) -> None:
        found = ranked(tmp_path, samples=32)
        assert found.samples == 32
        assert {one.layout.samples for one in found.ranking.candidates} == {32}
        assert found.now == Layout(pipeline=4, micro_batches=32)
        assert found.ranking.present is not None

    def test_the_global_batch_of_a_dynamic_graph_is_written(self) -> None:
        request = DryrunRequest(config=TEMPLATES / "mindformers_pynative" / "deepseek3_1b_moe.yaml")
        loaded = with_samples(load_config(request), 128)
        assert loaded.source.get(("training", "global_batch_size")) == 128

    @pytest.mark.parametrize(
        ("layout", "shards"), [(Layout(pipeline=4, micro_batches=8), False), (Layout(data=4), True)]
    )
    def test_optimizer_states_are_sharded_if_ranks_share_weights(
        self, tmp_path: Path, layout: Layout, *, shards: bool
    ) -> None:
        job = job_of(tmp_path, 4, 1, 32, 8)
        text = job.loaded.source.text.replace("use_distributed_optimizer: true", "use_distributed_optimizer: false")
        whole = job.loaded.with_source(parse_source(text, job.loaded.source.path))
        loaded = with_layout(whole, layout, job.layers, shards=True)
        assert (loaded.source.get(("training_config", "use_distributed_optimizer")) is True) is shards

    def test_all_dimensions_are_searched_if_none_is_named(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = job_of(tmp_path, 4, 1, 32, 8).loaded.source.path
        assert main(["fit", str(path), "--search", "--top", "0", "--global-batch", "16", "--json"]) == ExitCode.OK
        found = json.loads(capsys.readouterr().out)
        assert found["samples"] == 16
        layouts = [one["layout"] for one in found["ranking"]]
        assert all(len({one[name] for one in layouts}) > 1 for name in ("data", "pipeline", "chunks", "size"))
        assert found["ranking"][found["present"]]["layout"] == found["now"]
        seconds = [one["estimate"]["predicted"]["seconds"] for one in found["ranking"]]
        assert seconds == sorted(seconds)

    def test_communication_has_a_price(self) -> None:
        """The same devices with more of them in TP compute as much, and send more."""
        found = ranked(None, 64, free=("dp", "tp"), keep={"pp": 2})
        steps = {one.layout.tensor: one.estimate.step for one in found.ranking.candidates}
        assert steps[8].sent_seconds > steps[4].sent_seconds > steps[2].sent_seconds
        assert steps[8].seconds > steps[4].seconds > steps[2].seconds

    @pytest.mark.slow
    def test_less_memory_recomputes_more_and_leaves_out_more(self) -> None:
        free = ("dp", "tp", "pp")
        roomy, tight = (ranked(None, gib, free=free) for gib in (64, 24))
        by_layout = {one.layout: one.estimate for one in roomy.ranking.candidates}
        assert not tight.ranking.present_fits
        assert tight.ranking.candidates[-1].layout == tight.now
        for one in tight.ranking.fitting:
            before = by_layout[one.layout]
            assert sum(one.estimate.recomputed) >= sum(before.recomputed)
            assert one.estimate.step.seconds >= before.step.seconds * (1 - 1e-9)
            assert one.estimate.least_bytes <= 1.15 * tight.limit.bytes
        assert tight.ranking.pruned > roomy.ranking.pruned


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> list[Layout]:
    """Replace dryruns with an invented job; layouts of eight stages cannot run. Record the planned layouts."""
    monkeypatch.setitem(search._BUDGETS, Effort.QUICK, search._Budget(60_000, 150, 10, 100, 3))
    monkeypatch.setattr(planning_fit, "_WORK", 10_000)
    made, noted = World(), []
    kinds = {kind.value: kind for kind in RecomputeMode}

    def measure(
        request: DryrunRequest, probes: Sequence[Probe], _observer: Observer
    ) -> tuple[RunFigures | MsTuneError, ...]:
        job = read_job(request, probes[0].loaded)
        noted.append(read_layout(job.loaded, job.first))
        if job.stages == 4:
            return (RunError(msg("dryrun.run.failed", code=1, reason="made up")),) * len(probes)
        return tuple(made.figures(job, probe) if probe.name in kinds else made.some(job, probe) for probe in probes)

    def simulated(job: PlannedJob, plan: PlanLists, stages: tuple[int, ...], _observer: Observer) -> DryrunResult:
        limit = limit_of(device_of(None, job.request.device_bytes))
        results = []
        for index in stages:
            peak = made.peak(job, plan, index)
            verdict = judge(Need.of_trace(peak, peak + made.fragments * MIB), limit, UntracedNeeds(communicators=2))
            results.append(SimpleNamespace(run=SimpleNamespace(stage=index), verdict=verdict, judged_bytes=peak))
        return SimpleNamespace(stages=results)  # type: ignore[return-value]

    monkeypatch.setattr(engine, "measure_probes", measure)
    monkeypatch.setattr(verify_loop, "simulate_plan", simulated)
    monkeypatch.setattr(verify_loop, "find_worst_stages", lambda job, _plan: tuple(range(job.stages)))
    return noted


@pytest.mark.slow
class TestTried:
    def test_the_fastest_that_fits_is_chosen_and_written(self, tmp_path: Path, world: list[Layout]) -> None:
        found = ranked(tmp_path, 64, free=("dp", "pp"), top=3)
        tried = [one.candidate.layout for one in found.tried]
        assert tried == [one.layout for one in found.ranking.candidates[:3]]
        assert set(world) <= set(tried)
        good = [one for one in found.tried if one.step is not None]
        assert good
        assert found.chosen is min(good, key=lambda one: one.step.seconds if one.step else 0)
        failed = [one for one in found.tried if one.candidate.layout.pipeline == 4]
        assert all(one.error is not None and one.step is None for one in failed)
        assert found.best is not None
        text = found.best.text
        assert found.best.source.text == found.source.text != text
        assert found.best.changed > 0
        assert "select" not in text
        loaded = load_config(DryrunRequest(config=found.source.path)).with_source(parse_source(text, found.source.path))
        there = loaded._replace(devices=loaded.devices._replace(npus=4))
        job = read_job(DryrunRequest(config=found.source.path, devices=4), there)
        assert read_layout(there, job.first) == found.chosen.candidate.layout

    def test_what_lint_refuses_is_reported_and_not_run(
        self, tmp_path: Path, world: list[Layout], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = job_of(tmp_path, 4, 1, 32, 8)
        request = DryrunRequest(config=job.loaded.source.path, device_bytes=64 * GIB)
        hooks = SearchHooks(Observer(), refusal=lambda _source: msg("layouts.refused.lint", id="MST1", name="made-up"))
        asked = SearchRequest(ConfigFitRequest(request, effort=Effort.QUICK), ("dp", "pp"), top=2)
        found = search_layouts(asked, hooks)
        assert (world, found.chosen) == ([], None)
        assert {one.error.id for one in found.tried if one.error is not None} == {"layouts.refused.lint"}
        monkeypatch.setattr(searching, "fit_config", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            ranked(tmp_path, 64, free=("dp", "pp"), top=2)


def _interrupted(*_arguments: object) -> None:
    raise KeyboardInterrupt


class TestCommand:
    @pytest.mark.slow
    @pytest.mark.parametrize("language", ["en", "zh"])
    def test_the_ranking_alone(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], language: str) -> None:
        path = job_of(tmp_path, 4, 1, 32, 8).loaded.source.path
        arguments = ["fit", str(path), "--search", "dp,pp,vpp", "--top", "0", "--device-memory", "32GB"]
        assert main([*arguments, "--lang", language]) == ExitCode.OK
        shown = capsys.readouterr().out
        assert "pp4" in shown
        assert ("nothing was simulated" in shown) is (language == "en")
        assert "fits:" not in shown
        assert main([*arguments, "--json"]) == ExitCode.OK
        found = json.loads(capsys.readouterr().out)
        assert (found["devices"], found["samples"], found["chosen"], found["tried"]) == (4, 8, None, [])
        layouts = [Layout(**one["layout"]) for one in found["ranking"]]
        assert len(layouts) == len(set(layouts)) > 3
        assert found["now"] in [one["layout"] for one in found["ranking"]]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--search", "xp"], "xp"),
            (["--search", ""], "--search"),
            (["--search", "pp", "--keep", "tp=x"], "tp=x"),
            (["--search", "pp", "--keep", "tp=0"], "tp=0"),
            (["--search", "pp", "--keep", "tp=99999999999999999999"], "tp=9999"),
            (["--search", "pp", "--explain"], "--explain"),
            (["--top", "2"], "--top"),
            (["--keep", "tp=2"], "--keep"),
            (["--search", "dp,pp", "--devices", "1000000000000000000", "--top", "0"], "1000000000000000000"),
        ],
    )
    def test_mistakes_are_explained(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
    ) -> None:
        path = job_of(tmp_path, 4, 1, 32, 8).loaded.source.path
        assert main(["fit", str(path), *arguments]) == ExitCode.USAGE
        captured = capsys.readouterr()
        assert words in captured.err
        assert "Traceback" not in captured.err
