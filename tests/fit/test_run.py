"""Test the way from a config to a plan, with an invented job instead of dryruns: rounds, learning from dryruns, no plan."""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ms_tune.dryrun.request import DryrunRequest
from ms_tune.dryrun.task import Observer
from ms_tune.encode import as_json
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, MsTuneError, RunError, UnsupportedError, UsageError
from ms_tune.facts.query import data_folder
from ms_tune.fit import run as engine
from ms_tune.fit import table_cache, verify_loop
from ms_tune.fit.job import PlannedJob, lists_of_plan, read_job
from ms_tune.fit.result import ConfigFit, ConfigFitRequest
from ms_tune.fit.run import fit_config
from ms_tune.fit.verify_loop import is_same_stage
from ms_tune.planning import anneal, search
from ms_tune.planning import fit as planning_fit
from ms_tune.planning.fit import fit_table
from ms_tune.planning.search import Effort
from ms_tune.planning.table import PlanLists
from ms_tune.report import fit_config as config
from ms_tune.report import fit_json, fit_text
from ms_tune.report.console import Console
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, msg
from ms_tune.units import GIB, gib
from ms_tune.verdict.limit import device_of, limit_of
from ms_tune.verdict.outcome import Fit, Need, UntracedNeeds, judge
from ms_tune.workflows.check.advice import TablePrediction, predict_by_table
from tests.fit.test_table import job_of
from tests.fit.world import MIB, World
from tests.jobs import normalize_source

if TYPE_CHECKING:
    from ms_tune.dryrun.result import DryrunResult
    from ms_tune.fit.measure import Probe, RunFigures


pytestmark = pytest.mark.slow  # searches, a second each


@dataclass
class Stage:
    """A function that replaces runs, with the number of its calls and their stages.

    ``lost`` may set the fragmentation of a stage's successive dryruns, and ``worst`` the largest stages of
    successive plans.
    """

    world: World
    truth: World
    runs: int = 0
    fails: RecomputeMode | None = None
    loses: str | None = None
    lost: dict[int, list[int]] = field(default_factory=dict)
    worst: list[tuple[int, ...]] = field(default_factory=list)
    simulated: list[tuple[int, ...]] = field(default_factory=list)
    small: list[str] = field(default_factory=list)

    def fragments(self, index: int) -> int:
        """Return the fragmentation of the next dryrun of a stage in MiB."""
        said = self.lost.get(index)
        return said.pop(0) if said else self.truth.fragments


def fitted(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    stage: Stage,
    gib: float,
    job: PlannedJob | int = 2,
    **asked: Any,  # noqa: ANN401 - of the request
) -> ConfigFit:
    """Return the plan of a job, or of one of this many stages of 8 layers, on devices of this many GiB; small and full runs may differ."""
    if isinstance(job, int):
        job = job_of(folder, job, 1, 8 * job, 4)
    device = int(gib * GIB)

    def measure(
        _request: DryrunRequest, probes: Sequence[Probe], _observer: Observer
    ) -> tuple[RunFigures | MsTuneError, ...]:
        kinds = {kind.value: kind for kind in RecomputeMode}
        stage.small += [probe.name for probe in probes]
        found: list[RunFigures | MsTuneError] = []
        for probe in probes:
            kind = kinds.get(probe.name)
            if kind is None and stage.loses == probe.name:
                found.append(RunError(msg("dryrun.run.failed", code=1, reason="made up")))
            elif kind is None:
                found.append(stage.world.some(job, probe))
            elif kind is stage.fails:
                found.append(RunError(msg("dryrun.run.failed", code=1, reason="made up")))
            else:
                found.append(stage.world.figures(job, probe))
        return tuple(found)

    def simulated(_job: PlannedJob, plan: PlanLists, stages: tuple[int, ...], _observer: Observer) -> DryrunResult:
        stage.runs += 1
        stage.simulated.append(stages)
        limit = limit_of(device_of(None, device))
        results = []
        for index in stages:
            peak = stage.truth.peak(job, plan, index)
            need = Need.of_trace(peak, peak + stage.fragments(index) * MIB)
            verdict = judge(need, limit, UntracedNeeds(communicators=2))
            results.append(SimpleNamespace(run=SimpleNamespace(stage=index), verdict=verdict, judged_bytes=peak))
        return SimpleNamespace(stages=results)  # type: ignore[return-value]

    monkeypatch.setenv("MS_TUNE_CACHE", str(folder / "cache"))
    monkeypatch.setattr(table_cache, "simulated_by", lambda: "made up")
    monkeypatch.setattr(engine, "measure_probes", measure)
    monkeypatch.setattr(verify_loop, "simulate_plan", simulated)
    every = tuple(range(job.stages))
    monkeypatch.setattr(
        verify_loop, "find_worst_stages", lambda _job, _plan: stage.worst.pop(0) if stage.worst else every
    )
    request = DryrunRequest(config=job.loaded.source.path, device_bytes=device)
    return fit_config(ConfigFitRequest(request, effort=Effort.QUICK, **asked), Observer())


def static_job(folder: Path) -> PlannedJob:
    """Return a job with two stages of eight layers in a static graph."""
    text = (data_folder("yaml_templates") / "mindformers" / "qwen3_32b.yaml").read_text(encoding="utf-8")
    data = yaml.safe_load(text)
    data["parallel_config"] |= {"pipeline_stage": 2, "micro_batch_num": 4}
    data["model"]["model_config"] |= {"num_hidden_layers": 16, "pp_interleave_num": 1, "offset": 0}
    data["parallel"]["pipeline_config"]["pipeline_interleave"] = False
    data["recompute_config"] = {"recompute": [0, 0]}
    data["context"]["max_device_memory"] = "12GB"
    file = folder / "static.yaml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    return read_job(DryrunRequest(config=file))


@pytest.fixture(autouse=True)
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the searches: other tests examine their results."""
    monkeypatch.setitem(search._BUDGETS, Effort.QUICK, search._Budget(60_000, 100, 20, 200, 6))
    monkeypatch.setattr(planning_fit, "_WORK", 20_000)
    monkeypatch.setattr(anneal, "_PACE", 1)


class TestPlans:
    def test_one_that_fits_is_proved_and_written(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        stage = Stage(World(), World())
        found = fitted(monkeypatch, tmp_path, stage, 14)
        assert found.chosen is not None
        assert found.chosen.fits
        assert found.chosen.exact
        assert "fitting.note.off" not in [note.id for note in config.plan_notes(found)]
        planned = found.chosen.report.planned
        assert planned is not None
        assert sum(map(sum, planned.plan.recompute)) > 0
        # The framework's own rules read the plan out of the text.
        plan = normalize_source(parse_source(found.text, found.source.path))
        full = [0] * 2
        for layer in plan.layers:
            full[layer.stage] += layer.recompute.value == "full"
        assert (tuple(full),) == planned.plan.recompute
        assert found.source.path.read_text(encoding="utf-8") == found.source.text

    @pytest.mark.parametrize("simulated", [0, 1])
    def test_a_stop_during_a_dryrun_keeps_the_plan(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, simulated: int
    ) -> None:
        class Stopped(Stage):
            def fragments(self, index: int) -> int:
                if self.runs > simulated:
                    raise KeyboardInterrupt(signal.SIGTERM)
                return super().fragments(index) + 900  # the first plan does not fit: a second one is simulated

        found = fitted(monkeypatch, tmp_path, Stopped(World(), World()), 14)
        assert (found.chosen, found.last.verified, found.last.report.stopped) == (None, (), signal.SIGTERM)
        assert found.last.report.planned is not None
        assert len(found.rounds) == simulated + 1

    def test_swap_that_copies_hide_is_taken_and_written(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        job = static_job(tmp_path)
        kinds = (RecomputeMode.FULL, RecomputeMode.SWAP)
        asked: dict[str, Any] = {"job": job, "kinds": kinds, "swap_bandwidth": 1000 * GIB}
        found = fitted(monkeypatch, tmp_path, Stage(World(), World()), 14, **asked)
        assert found.chosen is not None
        assert found.chosen.fits
        assert found.chosen.report.optimal
        planned = found.chosen.report.planned
        assert planned is not None
        assert planned.time == found.chosen.report.reference.time  # no recomputation, and the copies are hidden
        plan = normalize_source(parse_source(found.text, found.source.path))
        swaps = [0] * 2
        for layer in plan.layers:
            swaps[layer.stage] += bool(layer.swap)
        assert (tuple(swaps),) == planned.plan.swap
        assert sum(swaps) > 0
        assert "fitting.note.swap-peak" in [note.id for note in config.plan_notes(found)]
        # With a link that is slow compared with the passes, recomputing is cheaper.
        slow = fitted(monkeypatch, tmp_path, Stage(World(), World()), 14, **{**asked, "swap_bandwidth": GIB // 4})
        assert slow.chosen is not None
        assert slow.chosen.report.planned is not None
        assert not slow.chosen.report.planned.plan.swap
        assert [note.params["kind"] for note in slow.notes if note.id == "fitting.kind-fails"] == ["swap"]

    def test_swap_needs_a_bandwidth(self) -> None:
        with pytest.raises(UsageError, match="the cost of swap"):
            ConfigFitRequest(kinds=(RecomputeMode.SWAP,))
        with pytest.raises(UsageError, match="not allowed to swap"):
            ConfigFitRequest(swap_bandwidth=GIB)

    def test_a_dialect_without_swap_says_so(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        kinds = (RecomputeMode.FULL, RecomputeMode.SWAP)
        found = fitted(monkeypatch, tmp_path, Stage(World(), World()), 14, kinds=kinds, swap_bandwidth=GIB)
        assert found.chosen is not None
        assert RecomputeMode.SWAP not in found.table.kinds
        assert [note.id for note in found.notes] == ["fitting.kind-fails"]

    @pytest.mark.parametrize("more", [200, 900])
    def test_what_the_small_runs_did_not_show_is_learnt(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: int
    ) -> None:
        stage = Stage(World(), World(anyhow=(1500 + more, 200 + more, 1800), fragments=300 + more))
        found = fitted(monkeypatch, tmp_path, stage, 17)
        assert len(found.rounds) > 1
        assert stage.runs == len(found.rounds) <= 3
        assert found.chosen is not None
        assert found.chosen.fits
        assert not found.rounds[0].exact
        assert found.chosen.exact
        assert "fitting.note.off" in [note.id for note in config.plan_notes(found)]
        # The page and the terminal agree: the peaks of the dryruns, and those without fragmentation.
        console = Console(Language.EN)
        assert console.say(config.verdict_lines_of(found)[0]).startswith("Plan found: fits; ")
        page = fit_text.plan_page(partial(config.shown_of, found), [found.source.path], Language.EN)
        for one, predicted in zip(found.chosen.verified, found.chosen.peak_bytes, strict=True):
            row = f'<td class="n">{one.stage}</td><td class="n">{predicted / GIB:.2f}</td><td>{one.peak_bytes / GIB:.2f}</td>'
            assert row in page
        assert all(escape(console.say(line)) in page for line in config.verdict_lines_of(found))

    def test_stages_represent_others_as_in_the_plan_that_is_handed_over(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        # The second plan is faster and does not fit; only its first stage had to be run.
        stage = Stage(World(fragments=3000), World(), lost={0: [50, 9000], 1: [50]}, worst=[(0, 1), (0,)])
        found = fitted(monkeypatch, tmp_path, stage, 17)
        assert [one.fits for one in found.rounds[:2]] == [True, False]
        assert found.chosen is not None
        assert found.chosen.verified == found.rounds[0].verified
        assert [one.stands_for for one in found.rounds[:2]] == [(0, 1), (0, 0)]
        assert fit_json.config_fit_json(found)["stands_for"] == (0, 1)

    def test_fragments_of_small_runs_are_no_proof(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        world, truth = World(fragments=6000), World(fragments=20)
        found = fitted(monkeypatch, tmp_path, Stage(world, truth), 14)
        assert found.chosen is not None
        assert found.chosen.fits
        stage = Stage(world, world)
        wasteful = fitted(monkeypatch, tmp_path, stage, 14)
        assert wasteful.chosen is None
        plans = [one.report.planned.plan for one in wasteful.rounds if one.report.planned is not None]
        assert stage.runs == len(set(plans)) == len(wasteful.rounds)  # no plan is simulated twice
        # A plan with too much fragmentation is not reported as verified.
        assert wasteful.rounds[0].verified
        assert wasteful.rounds[0].report.shortage is None

    @pytest.mark.parametrize("language", list(Language))
    def test_a_stage_that_fragments_fail_recomputes_more_and_runs_alone(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, language: Language
    ) -> None:
        stage = Stage(World(), World(), lost={1: [900, 900]})
        found = fitted(monkeypatch, tmp_path, stage, 16, job_of(tmp_path, 4, 1, 32, 8))
        assert stage.simulated[:2] == [(0, 1, 2, 3), (1,)]
        first, second = found.rounds[:2]
        assert [one.verdict.outcome for one in first.verified] == [Fit.FITS, Fit.TIGHT, Fit.FITS, Fit.FITS]
        assert first.report.planned is not None
        assert second.report.planned is not None
        one, other = first.report.planned.plan, second.report.planned.plan
        assert one.offset == other.offset
        assert [after - before for before, after in zip(one.recompute[0], other.recompute[0], strict=True)] == [
            0,
            1,
            0,
            0,
        ]
        # Kept stages have the results of the first dryrun, and the report states which stages ran and why.
        assert second.kept == (0, 2, 3)
        assert [second.verified[index] for index in second.kept] == [first.verified[index] for index in second.kept]
        assert second.fits
        assert found.chosen is not None
        assert found.chosen.fits
        assert second.report.lower_bound <= second.report.planned.time
        notes = [Console(language).say(note) for note in config.plan_notes(found) if note.id == "fitting.note.relieved"]
        assert len(notes) == 1
        assert Console(language).say(first.verified[1].verdict.sentence) in notes[0]
        assert fit_text.recomputed_layers(second.relieved[0].after[0]) in notes[0]
        reported = as_json(fit_json.config_fit_json(found), language)["rounds"]
        assert [(one["relieved"], one["kept"]) for one in reported[:2]] == [([], []), ([1], [0, 2, 3])]

    def test_where_no_stage_fits_there_is_nothing_to_keep(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        stage = Stage(World(), World(), lost={0: [900], 1: [900]})
        found = fitted(monkeypatch, tmp_path, stage, 13)
        assert not found.rounds[0].fits
        assert not any(one.relieved for one in found.rounds)
        assert stage.simulated[1] == (0, 1)

    def test_a_stage_that_is_known_not_to_fit_is_in_no_later_plan(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        stage = Stage(World(), World(fragments=700))
        found = fitted(monkeypatch, tmp_path, stage, 13, job_of(tmp_path, 4, 1, 32, 8))
        assert len(found.rounds) == 3
        for earlier, later in itertools.combinations(found.rounds, 2):
            assert earlier.report.planned is not None
            assert later.report.planned is not None
            plans = earlier.report.planned.plan, later.report.planned.plan
            unfit = [one.stage for one in earlier.verified if one.verdict.outcome is not Fit.FITS]
            assert unfit
            assert not any(is_same_stage(*plans, index) for index in unfit)

    def test_nothing_fits(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        stage = Stage(World(), World())
        found = fitted(monkeypatch, tmp_path, stage, 5)
        assert found.chosen is None
        assert stage.runs == 0
        assert found.text == found.source.text
        shortage = found.last.report.shortage
        assert shortage is not None
        assert shortage.over_bytes >= shortage.at_least_bytes > 0
        # Twice as many stages of half the layers need about half of the missing memory.
        names = [remedy.name for remedy in found.last.report.remedies]
        assert names == ["micro-batch", "stages", "tensor"]
        assert {"stages", "tensor"} <= {
            remedy.name for remedy in found.last.report.remedies if remedy.freed_bytes > GIB
        }

    @pytest.mark.parametrize("language", list(Language))
    def test_where_fragments_leave_no_plan_that_is_said_with_where_and_what_helps(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, language: Language
    ) -> None:
        stage = Stage(World(fragments=100), World(), lost={0: [5900, 6000, 6000], 1: [7000, 6800, 6900]})
        found = fitted(monkeypatch, tmp_path, stage, 14)
        assert found.chosen is None
        report = found.lacking
        assert report is not None
        assert report.planned is None
        assert report.shortage is not None
        runs = [one for one in found.rounds if one.verified]
        for index, size in enumerate(found.least_fragment_bytes):
            seen = [stage for one in runs for stage in one.verified if stage.stage == index]
            assert size == min(stage.needed_bytes - found.reserve_bytes - stage.peak_bytes for stage in seen)
        # The reported shortage is exact: with that memory there is a plan, with less than the proved bound there is
        # none.
        least, over = report.shortage.at_least_bytes, report.shortage.over_bytes
        limits = [report.table.limit_bytes + more for more in (least - 1, over)]
        plans = [fit_table(report.table._replace(limit_bytes=limit), effort=Effort.QUICK).planned for limit in limits]
        assert [plan is not None for plan in plans] == [False, True]
        assert report.remedies[0].name == "vmm"
        assert report.remedies[0].freed_bytes == found.least_fragment_bytes[report.shortage.stage]
        said = [Console(language).say(line) for line in config.verdict_lines_of(found)]
        assert gib(least) in said[-1]
        assert gib(over) in said[-1]
        data = as_json(fit_json.config_fit_json(found), language)
        assert (data["fits"], data["plan"]) == (False, None)
        assert data["shortage"]["at_least_bytes"] == least
        assert next(one["name"] for one in data["remedies"]) == "vmm"

    @pytest.mark.parametrize(
        "form",
        [
            "&cells [8, 8]\ncopy: *cells",
            "[&one 8, *one]",
        ],
    )
    def test_lists_that_cannot_be_written_are_refused_before_anything_is_run(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str
    ) -> None:
        file = job_of(tmp_path, 2, 1, 16, 4).loaded.source.path
        text = re.sub(r"  num_layer_list:\n(  +- .*\n)+", "", file.read_text(encoding="utf-8"))
        first, _, more = form.partition("\ncopy")
        text = text.replace("parallel_config:\n", f"parallel_config:\n  num_layer_list: {first}\n", 1)
        file.write_text(text + (f"copy{more}\n" if more else ""), encoding="utf-8")
        monkeypatch.setattr(engine, "measure_probes", lambda *_arguments: pytest.fail("something was run"))
        with pytest.raises(ConfigError, match="num_layer_list") as caught:
            fit_config(ConfigFitRequest(DryrunRequest(config=file)), Observer())
        assert caught.value.hint is not None
        assert caught.value.line is not None

    def test_without_proof_nothing_is_run(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        stage = Stage(World(), World())
        found = fitted(monkeypatch, tmp_path, stage, 14, verify=False)
        assert stage.runs == 0
        assert found.chosen is not None
        assert found.chosen.verified == ()
        assert not found.chosen.fits


class TestKinds:
    def test_a_run_next_to_that_fails_is_reported(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        found = fitted(monkeypatch, tmp_path, Stage(World(), World(), loses="some 1"), 14)
        assert [note.id for note in found.notes] == ["fitting.runs-fail"]
        assert found.chosen is not None

    @pytest.mark.parametrize("both", [200, 250])
    def test_communication_is_run_in_a_static_graph_where_it_may_free_more(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, both: int
    ) -> None:
        held = World().activations | {RecomputeMode.SELECT: 250, RecomputeMode.COMM: 270, RecomputeMode.BOTH: both}  # type: ignore[operator]
        world = World(activations=held)
        stage, more = Stage(world, world), both < 250
        found = fitted(monkeypatch, tmp_path, stage, 14, job=static_job(tmp_path))
        assert ("comm" in stage.small, "both" in stage.small) == (more, True)
        assert {RecomputeMode.COMM, RecomputeMode.BOTH} & set(found.table.kinds) == (
            {RecomputeMode.COMM, RecomputeMode.BOTH} if more else set()
        )
        assert ("fitting.comm-no-more" in [note.id for note in found.notes]) is not more

    def test_one_that_cannot_be_run_is_reported_and_not_used(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        found = fitted(monkeypatch, tmp_path, Stage(World(), World(), fails=RecomputeMode.COMM), 14)
        assert RecomputeMode.COMM not in found.table.kinds
        assert [note.params["kind"] for note in found.notes] == ["comm"]
        assert found.chosen is not None

    def test_without_plain_layers_there_is_no_table(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        with pytest.raises(RunError):
            fitted(monkeypatch, tmp_path, Stage(World(), World(), fails=RecomputeMode.NONE), 14)


class TestVerdicts:
    def test_a_tight_plan_only_where_that_is_allowed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        # Fragmentation grows with the plan, regardless of the reserve: no plan is more than tight.
        truth = World(fragments=13_000)
        strict = fitted(monkeypatch, tmp_path, Stage(World(), truth), 14)
        assert strict.chosen is None
        assert strict.rounds[0].verified
        assert {one.verdict.outcome for one in strict.rounds[0].verified} <= {Fit.FITS, Fit.TIGHT}
        loose = fitted(monkeypatch, tmp_path, Stage(World(), truth), 14, allow_tight=True)
        assert loose.chosen is not None


def test_a_schedule_that_is_not_simulated_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = job_of(tmp_path)
    other = job._replace(first=job.first._replace(pipeline=job.first.pipeline._replace(schedule=None)))
    monkeypatch.setattr(engine, "read_job", lambda _request, _loaded: other)
    with pytest.raises(UnsupportedError) as caught:
        fit_config(ConfigFitRequest(job.request), Observer())
    assert "docs/fit.md" in str(caught.value.hint)


def _with_margin(need: int) -> int:
    return need * 1000 // 995 + 2  # other plans may be 0.5 % from the table


class TestKept:
    """The table of a run is available to ``ms-tune check``, with all its inputs as the key."""

    def test_check_judges_by_it(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        fitted(monkeypatch, tmp_path, Stage(World(), World()), 14, verify=False, kinds=(RecomputeMode.FULL,))
        job = job_of(tmp_path, 2, 1, 16, 4)
        found = table_cache.read_cached_table(job)
        assert found is not None
        assert (found.table.stages, found.table.layer_count) == (2, 16)
        assert found.fragment_bytes == (300 * MIB,) * 2

        def needs(full: int, stage: int) -> int:
            rows = ((full, full),)
            return World().peak(job, PlanLists(((0, 0),), rows, rows, rows), stage) + 300 * MIB

        assert predict_by_table(job, _with_margin(max(needs(0, 0), needs(0, 1)))) == TablePrediction(fits=True)
        assert predict_by_table(job, _with_margin(needs(0, 0) - MIB)) == TablePrediction(fits=False)

    def test_check_says_what_dryruns_verified_and_not_what_they_refuted(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        truth = World(fragments=700)  # small runs show 300 MiB
        found = fitted(monkeypatch, tmp_path, Stage(World(), truth), 14)
        assert found.chosen is not None
        assert found.chosen.report.planned is not None
        plan, room = found.chosen.report.planned.plan, found.limit.bytes - found.reserve_bytes
        refuted = [one.report.planned.plan for one in found.rounds if not one.fits and one.report.planned is not None]
        assert refuted

        def fits(other: PlanLists) -> bool:
            return all(truth.peak(job, other, stage) + 700 * MIB <= room for stage in range(2))

        job = job_of(tmp_path, 2, 1, 16, 4)
        assert fits(plan) is not any(map(fits, refuted))
        said = predict_by_table(job, room)
        assert said is not None
        assert said.change is not None
        assert yaml.safe_load(said.change.settings[0].raw)["recompute"] == list(plan.recompute[0])
        worse = read_job(job.request, job.with_lists(lists_of_plan(job, refuted[0])))
        assert predict_by_table(worse, room) != TablePrediction(fits=True)
        for other in found.chosen.report.alternatives:
            assert other.refuted is (other.plan is not None and other.plan != plan and not fits(other.plan))

    def test_it_is_taken_for_nothing_else(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        fitted(monkeypatch, tmp_path, Stage(World(), World()), 14, verify=False)
        assert table_cache.read_cached_table(job_of(tmp_path, 2, 1, 16, 8)) is None
        assert table_cache.read_cached_table(job_of(tmp_path, 2, 1, 20, 4)) is None
        job = job_of(tmp_path, 2, 1, 16, 4)
        monkeypatch.setattr(table_cache, "simulated_by", lambda: "another release")
        assert table_cache.read_cached_table(job) is None
        monkeypatch.setattr(table_cache, "simulated_by", lambda: "made up")
        assert table_cache.read_cached_table(job) is not None
        for file in (tmp_path / "cache" / "fit").iterdir():
            for text in (
                "",
                "[]",
                '{"table": 1, "fragments": []}',
                file.read_text().replace('"fragments": [', '"fragments": [-1, '),
            ):
                file.write_text(text)
                assert table_cache.read_cached_table(job) is None
