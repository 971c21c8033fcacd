"""Test verdicts on profiles with known causes, and on cut off, partial or broken captures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ms_tune import analyse_profiles
from ms_tune.cli.main import main
from ms_tune.errors import TraceError
from ms_tune.profile.result import Bound, ProfileReport, QueueState
from ms_tune.readers import profile_export
from ms_tune.readers.profile_export import read_events
from ms_tune.readers.scopes import ScopePass
from tests.metrics.profiles import BASE, Step, host_bound, network_bound, operator_bound, pipeline, waiting
from tests.readers.training_logs import PUBLIC

ALEXNET = PUBLIC / "profiler" / "alexnet_level1"
CLUSTER = PUBLIC / "profiler" / "cluster_step_trace_time_msinsight.csv"


def ids(report: ProfileReport) -> list[str]:
    return [problem.id for problem in report.problems]


class TestVerdict:
    @pytest.mark.parametrize(
        ("make", "bound"),
        [
            (host_bound, Bound.HOST),
            (operator_bound, Bound.OPERATOR),
            (network_bound, Bound.NETWORK),
            (waiting, Bound.RANKS),
            (pipeline, Bound.IMBALANCE),
        ],
    )
    def test_of_a_known_cause(self, tmp_path: Path, make: Callable[[], Step], bound: Bound) -> None:
        make().write(tmp_path)
        report = analyse_profiles(tmp_path)
        assert report.verdict.bound is bound
        assert sum(report.shares.values()) == pytest.approx(1)
        assert report.identity_error_us == pytest.approx(0, abs=1e-6)
        assert ids(report) == []
        assert report.verdict.evidence
        assert report.verdict.next_steps

    def test_ranks_of_a_group_that_are_not_there(self, tmp_path: Path) -> None:
        def problems() -> list[str]:
            return [str(one.message) for one in analyse_profiles(tmp_path).problems if one.id == "missing-ranks"]

        metadata = waiting().write(tmp_path, 1).parent / "profiler_metadata.json"
        groups = {"a": {"group_name": "hccl_world_group", "global_ranks": [0, 1, 2, 3]}, "b": {"global_ranks": [1, 5]}}
        for text in (
            '{"parallel_group_info": [1]}',
            '{"parallel_group_info": {"a": {"global_ranks": "x"}}}',
            "[",
            "[1]",
        ):
            metadata.write_text(text, "utf-8")
            assert not problems()
        metadata.write_text(json.dumps({"parallel_group_info": groups}), "utf-8")
        (reported,) = problems()
        assert "4 ranks of the same groups" in reported
        assert "(0, 2, 3, 5)" in reported
        for rank in (0, 2, 3, 5):
            waiting().write(tmp_path, rank)
        assert not problems()

    def test_two_equal_shares_are_mixed(self, tmp_path: Path) -> None:
        Step().kernel(5000.0).collective(4600.0, 4600.0).kernel(100.0).write(tmp_path)
        assert analyse_profiles(tmp_path).verdict.bound is Bound.MIXED

    def test_of_many_ranks_one_that_computes_longer(self, tmp_path: Path) -> None:
        # Three of four compute 5 of 9.3 ms and wait for the fourth: computing is the largest share of the mean all the same.
        for rank, compute in enumerate((5000.0, 5000.0, 5000.0, 9000.0)):
            Step().kernel(compute).collective(9300.0 - compute, 250.0).write(tmp_path, rank)
        report = analyse_profiles(tmp_path)
        assert report.shares[QueueState.WAITING] == pytest.approx((3 * 4050 + 50) / 4 / 9300)
        assert report.verdict.bound is Bound.IMBALANCE
        # A slightly slower rank is not a cause.
        for rank, compute in enumerate((8000.0, 9000.0)):
            Step().kernel(compute).collective(9300.0 - compute, 250.0).write(tmp_path / "little", rank)
        assert analyse_profiles(tmp_path / "little").verdict.bound is Bound.OPERATOR

    def test_never_the_network_where_hosts_are_late(self, tmp_path: Path) -> None:
        host_bound().write(tmp_path)
        report = analyse_profiles(tmp_path)
        assert report.shares[QueueState.WAITING] > report.shares[QueueState.HOST]
        assert any("whose hosts launch late, not for the network" in str(line) for line in report.verdict.evidence)

    def test_remedies_are_the_next_steps(self, tmp_path: Path) -> None:
        step = Step()
        for _ in range(10):
            step.kernel(5.0, core="AI_CPU").idle(200.0, late=190.0, doing="enumerate(DataLoader)#next")
        step.write(tmp_path)
        lines = " ".join(map(str, analyse_profiles(tmp_path).verdict.next_steps))
        assert "num_workers" in lines


class TestLayers:
    def test_scopes_of_a_graph_show_layers_and_passes(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        scope = "Default/network-Trainer/model-Model/layers-CellList/{}-Block/attention-Attention/MatMul-op{}"
        step = Step()
        # Names of MindSpore 2.9: also for recomputed operators in their first run, and for gradients.
        for layer, mark in ((0, "recompute_"), (11, "")):
            step.kernel(30.0, mark + scope.format(layer, 0))
            if mark:
                step.kernel(31.0, mark + scope.format(layer, 1))
            step.kernel(60.0, f"Gradients/{mark}{scope.format(layer, 2)}")
        step.kernel(5.0, "Default/network-Trainer/optimizer-AdamW/Adam-op7").write(tmp_path)
        (rank,) = analyse_profiles(tmp_path).ranks
        assert rank.kernels is not None
        assert [(one.name, one.count, dict(one.microseconds)) for one in rank.kernels.layers] == [
            ("layers.0", 3, {ScopePass.BACKWARD: 60.0, ScopePass.RECOMPUTE: 61.0}),
            ("layers.11", 2, {ScopePass.FORWARD: 30.0, ScopePass.BACKWARD: 60.0}),
        ]
        main(["profile", str(tmp_path), "--json"])
        (result,) = json.loads(capsys.readouterr().out)["ranks"]
        assert result["kernels"]["layers"][1] == {
            "name": "layers.11",
            "count": 2,
            "forward_us": 30.0,
            "backward_us": 60.0,
            "recompute_us": 0.0,
        }
        main(["profile", str(tmp_path), "-v"])
        assert "layers.11" in capsys.readouterr().out


class TestParts:
    def test_idle_time_is_split_at_the_launch(self, tmp_path: Path) -> None:
        Step().kernel(100.0).idle(300.0, late=240.0).idle(100.0, late=-5.0).write(tmp_path)
        (rank,) = analyse_profiles(tmp_path).ranks
        assert rank.times_us[QueueState.HOST] == pytest.approx(240)
        assert rank.times_us[QueueState.DEPENDENCY] == pytest.approx(160)
        assert rank.idle_linked == 1

    def test_collectives_are_split_by_their_transit(self, tmp_path: Path) -> None:
        step = Step().kernel(100.0).collective(1000.0, 250.0).collective(3000.0, 250.0, point_to_point=True)
        step.write(tmp_path)
        report = analyse_profiles(tmp_path)
        (rank,) = report.ranks
        assert rank.times_us[QueueState.TRANSFER] == pytest.approx(500)
        assert rank.times_us[QueueState.WAITING] == pytest.approx(750)
        assert rank.times_us[QueueState.BUBBLE] == pytest.approx(2750)
        assert [(one.name, one.elapsed_us, one.transit_us) for one in report.collectives] == [
            ("hcom_receive", 3000.0, 250.0),
            ("hcom_allReduce", 1000.0, 250.0),
        ]

    def test_hidden_sends_are_no_bubble(self, tmp_path: Path) -> None:
        """A receive in parallel with kernels takes no additional time; the collective alone does."""
        step = Step().kernel(4000.0).collective(1000.0, 100.0)
        step.event(11, "hcom_receive__9_9_9", 0.0, 3000.0, data_type="FP32")
        times = {"Elapse Time(ms)": 3.0, "Transit Time(ms)": 0.1}
        step.communication["p2p"]["hcom_receive__9_9_9@1"] = {"Communication Time Info": times}
        step.write(tmp_path)
        (rank,) = analyse_profiles(tmp_path).ranks
        assert QueueState.BUBBLE not in rank.times_us
        assert rank.times_us[QueueState.WAITING] == pytest.approx(900)

    def test_the_longest_gap_has_its_place_neighbours_and_host_event(self, tmp_path: Path) -> None:
        step = Step().kernel(100.0, "Conv_7").idle(300.25, late=290.0, doing="train.py(3): forward")
        step.event(13, "ProfilerStep#50", -100.0, 5000.0)
        step.write(tmp_path)
        (gap,) = analyse_profiles(tmp_path, gaps=3).gaps
        assert gap.timestamp_us == f"{BASE + 100}.000"
        assert gap.microseconds == pytest.approx(300.25)
        assert (gap.cause, gap.before, gap.after) == (QueueState.HOST, "Conv_7", "Add_2")
        assert gap.host == "train.py(3): forward"

    def test_a_clusters_table(self, tmp_path: Path) -> None:
        table = tmp_path / "cluster_step_trace_time.csv"
        table.write_text(
            "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble\n"
            '2,rank,0,70,20,0,20,10,100,0\n2,rank,1,20,70,0,70,10,40,60\n2,stage,"(0, 1)",70,70,0,70,10,100,60\n',
            "utf-8",
        )
        report = analyse_profiles(table)
        assert report.verdict.bound is Bound.IMBALANCE
        assert [rank.rank for rank in report.ranks] == [0, 1]
        assert report.identity_error_us == 0
        assert any("rank 1 waits for other stages for 60.0%" in str(line) for line in report.verdict.evidence)


_OLD = "Step,Computing,Communication(Not Overlapped),Communication,Free"
_SERVING = "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,Preparing"
_SUMMARY = "Device_id,Stream ID,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),Task Wait Time(us)"


@pytest.mark.parametrize(
    ("place", "rows", "shares", "problems"),
    [
        (
            "rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv",
            [_OLD, "10,200,195,224,230", "11,200,195,224,230"],
            {QueueState.COMPUTE: 200 / 625, QueueState.COMMUNICATION: 195 / 625, QueueState.FREE: 230 / 625},
            ["no-trace", "no-stage"],
        ),
        (
            "step_trace_time.csv",
            [_SERVING, "0,0,6.9,0,1.1,1.1,15.1,Prefill,,", "0,1,6.9,0,1.1,1.1,15.1,Decode,,"],
            {QueueState.COMPUTE: 6.9 / 22, QueueState.FREE: 15.1 / 22},
            ["no-trace", "no-stage"],
        ),
        (
            "PROF_1/mindstudio_profiler_output/op_summary_20260101.csv",
            [
                *(_SUMMARY, "0,2,m,MatMulV2,AI_CORE,1000,60,0", "0,2,n,Add,AI_VECTOR_CORE,1040,40,0"),
                *("0,9,r,hcom_allReduce_,COMMUNICATION,1070,50,0", "0,2,m,MatMulV2,AI_CORE,1180,20,0"),
            ],
            {QueueState.COMPUTE: 100 / 200, QueueState.COMMUNICATION: 40 / 200, QueueState.FREE: 60 / 200},
            ["no-steps"],
        ),
    ],
    ids=["a table without the step", "a step that is a word", "msprof's own export"],
)
def test_shares_of_exports_without_a_step_time(
    tmp_path: Path,
    place: str,
    rows: list[str],
    shares: dict[QueueState, float],
    problems: list[str],
) -> None:
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("\n".join([*rows, ""]), "utf-8")
    report = analyse_profiles(tmp_path)
    assert report.shares == pytest.approx(shares)
    assert ids(report) == problems


def test_a_capture_without_a_time_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "op_summary_1.csv").write_text("", "utf-8")
    assert main(["profile", str(tmp_path), "-v"]) == 1
    assert "0.00" not in capsys.readouterr().out


def test_msprof_beside_the_frameworks_export_is_not_read_twice(tmp_path: Path) -> None:
    output = operator_bound().write(tmp_path)
    other = output.parent / "PROF_1" / "mindstudio_profiler_output"
    other.mkdir(parents=True)
    (other / "op_summary_1.csv").write_text(f"{_SUMMARY}\n0,2,m,MatMulV2,AI_CORE,1000,60,0\n", "utf-8")
    assert len(analyse_profiles(tmp_path).ranks) == 1


class TestDoubts:
    @pytest.mark.parametrize(("error", "bound"), [(5, Bound.OPERATOR), (1e9, Bound.UNKNOWN)])
    def test_a_table_that_does_not_add_up(self, error: float, bound: Bound, tmp_path: Path) -> None:
        file = operator_bound().write(tmp_path) / "step_trace_time.csv"
        head, row = file.read_text().splitlines()
        fields = row.split(",")
        fields[6] = str(float(fields[6]) + error)
        file.write_text(f"{head}\n{','.join(fields)}\n")
        report = analyse_profiles(tmp_path)
        assert report.identity_error_us == pytest.approx(error)
        assert report.verdict.bound is bound
        assert ids(report) == ["identity"]

    def test_a_cut_trace_says_so(self, tmp_path: Path) -> None:
        file = host_bound().write(tmp_path) / "trace_view.json"
        file.write_text(file.read_text()[:-700])
        report = analyse_profiles(tmp_path)
        assert "truncated" in ids(report)
        assert report.verdict.bound is Bound.UNKNOWN

    def test_without_a_trace_gaps_cannot_be_determined(self, tmp_path: Path) -> None:
        output = host_bound().write(tmp_path)
        (output / "trace_view.json").unlink()
        (output / "communication.json").unlink()
        report = analyse_profiles(tmp_path)
        assert ids(report) == ["no-trace"]
        assert report.verdict.bound is Bound.UNKNOWN
        assert report.gaps == ()
        assert set(report.shares) == {QueueState.COMPUTE, QueueState.COMMUNICATION, QueueState.FREE}

    @pytest.mark.parametrize("missing", ["file", "flows"])
    def test_what_a_late_host_would_change_is_unknown_without_launches(self, tmp_path: Path, missing: str) -> None:
        def profile_step(step: Step) -> ProfileReport:
            folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
            trace = step.write(folder) / "trace_view.json"
            if missing == "file":
                trace.unlink()
            else:
                events = [event for event in json.loads(trace.read_text("utf-8")) if event["name"] != "HostToDevice"]
                trace.write_text(json.dumps(events), "utf-8")
            return analyse_profiles(folder)

        late = host_bound()
        assert (
            profile_step(late).verdict.bound is Bound.UNKNOWN
        )  # ranks that wait, or hosts that are late on all of them
        assert any("capture the host as well" in str(line) for line in profile_step(late).verdict.next_steps)
        assert max(profile_step(late).shares, key=profile_step(late).shares.__getitem__) is QueueState.WAITING
        assert (
            profile_step(operator_bound()).verdict.bound is Bound.OPERATOR
        )  # regardless of the cause of the small idle time

    def test_levels_are_not_compared_without_a_word(self, tmp_path: Path) -> None:
        operator_bound().write(tmp_path / "a", 0, level=0)
        operator_bound().write(tmp_path / "b", 0, level=2, stacks=True)
        assert ids(analyse_profiles(tmp_path / "a", tmp_path / "b")) == ["stacks", "levels", "several-captures"]

    def test_an_idle_window(self, tmp_path: Path) -> None:
        Step().kernel(10.0).idle(5000.0, late=4990.0).write(tmp_path / "nothing")
        report = analyse_profiles(tmp_path / "nothing")
        assert (ids(report), report.verdict.bound) == (["idle-window"], Bound.UNKNOWN)
        Step().kernel(10.0).idle(5000.0, late=4990.0, doing="enumerate(DataLoader)#next").write(tmp_path / "data")
        report = analyse_profiles(tmp_path / "data")
        assert (ids(report), report.verdict.bound) == (["idle-window"], Bound.HOST)

    @pytest.mark.parametrize(
        "name", ["trace_view.json", "step_trace_time.csv", "kernel_details.csv", "communication.json"]
    )
    @pytest.mark.parametrize("text", ["", "{", "nothing\n", "[1, 2", '{"a": "' + "x" * 100, "\x00\xff"])
    def test_a_broken_file_does_not_stop_the_others(self, tmp_path: Path, name: str, text: str) -> None:
        (host_bound().write(tmp_path) / name).write_text(text)
        report = analyse_profiles(tmp_path)
        assert report.problems or name == "communication.json"

    def test_no_profile(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="no profile in this folder"):
            analyse_profiles(tmp_path)
        with pytest.raises(TraceError, match="no such file or folder"):
            analyse_profiles(tmp_path / "absent")


class TestEvents:
    def test_blocks_end_anywhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        step = Step()
        for _ in range(30):
            step.kernel(10.0, 'a "}, {" b').idle(30.0, late=20.0)
        file = tmp_path / "trace_view.json"
        file.write_text(json.dumps(step.events), "utf-8")
        whole = read_events(file)
        for size in (997, 1013, 4099):
            monkeypatch.setattr("ms_tune.readers.profile_export._BLOCK", size)
            assert read_events(file) == whole


class TestCommand:
    def test_json_and_page(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        host_bound().write(tmp_path / "p")
        page = tmp_path / "x.html"
        assert main(["profile", str(tmp_path / "p"), "--json", "--html", str(page)]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["verdict"] == "host-bound"
        assert set(found) >= {
            "shares",
            "gaps",
            "identity_error_us",
            "problems",
            "ranks",
            "collectives",
            "evidence",
            "next",
        }
        assert len(found["gaps"]) == 10
        text = page.read_text("utf-8")
        assert "default-src &#x27;none&#x27;" in text
        assert "<script" not in text
        assert "http" not in text.replace("http-equiv", "")
        assert main(["profile", str(tmp_path / "p"), "--html", str(page)]) == 2

    @pytest.mark.parametrize(("language", "word"), [("en", "host-bound. The device"), ("zh", "Host 瓶颈")])
    def test_text(self, tmp_path: Path, language: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
        host_bound().write(tmp_path)
        assert main(["profile", str(tmp_path), "--lang", language]) == 0
        shown = capsys.readouterr().out
        assert word in shown
        assert "TASK_QUEUE_ENABLE=2" in shown
        assert len(shown.splitlines()) <= 20

    def test_names_are_escaped_on_the_page(self, tmp_path: Path) -> None:
        Step().kernel(10.0, "<script>alert(1)</script>").idle(50.0, late=40.0, doing="<b>").write(tmp_path / "p")
        page = tmp_path / "x.html"
        assert main(["profile", str(tmp_path / "p"), "--html", str(page), "--json"]) == 0
        assert "<script" not in page.read_text("utf-8")
        assert "<b>" not in page.read_text("utf-8")


def test_damaged_exports_give_shares_of_a_whole_or_a_problem(tmp_path: Path) -> None:
    random = Random(11)  # noqa: S311 - the same each time
    output = host_bound().write(tmp_path)
    files = {file: file.read_bytes() for file in output.iterdir()}
    for _ in range(60):
        file = random.choice(sorted(files))
        content = bytearray(files[file])
        for _ in range(random.randint(1, 20)):
            content[random.randrange(len(content))] = random.randrange(256)
        file.write_bytes(content[: random.randrange(len(content))] if random.random() < 0.4 else content)
        report = analyse_profiles(tmp_path)
        assert report.shares or report.problems, file
        assert report.verdict.bound is Bound.UNKNOWN or sum(report.shares.values()) == pytest.approx(1), file
        assert all(0 <= share <= 1 for share in report.shares.values()), file
        file.write_bytes(files[file])
    assert analyse_profiles(tmp_path).verdict.bound is Bound.HOST


@pytest.mark.skipif(not ALEXNET.is_dir(), reason="the public profiles are not here")
class TestPublic:
    def test_alexnet(self) -> None:
        report = analyse_profiles(ALEXNET)
        assert report.verdict.bound is Bound.HOST
        assert report.identity_error_us is not None
        assert report.identity_error_us < 1
        first, second = report.ranks
        assert (first.rank, second.rank, first.level) == (0, 1, "1")
        assert first.share_of(QueueState.COMPUTE) == pytest.approx(0.065, abs=0.001)
        assert first.times_us[QueueState.HOST] + first.times_us[QueueState.DEPENDENCY] == pytest.approx(25744, abs=1)
        assert first.idle_linked > 0.99

    def test_a_cluster_of_two_stages(self) -> None:
        report = analyse_profiles(CLUSTER)
        assert report.verdict.bound is Bound.IMBALANCE
        assert len(report.ranks) == 16
        assert report.identity_error_us is not None
        assert report.identity_error_us < 1


def test_no_more_folders_are_looked_into_than_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    monkeypatch.setattr(profile_export, "_MOST_FOLDERS", 3)
    assert not profile_export.contains_profile(tmp_path)
    (tmp_path / "c").mkdir()
    with pytest.raises(TraceError):
        profile_export.contains_profile(tmp_path)
