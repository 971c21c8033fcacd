"""Test the tables of a profile: every column, skipped rows, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers import profile_tables
from ms_tune.readers.profile_tables import (
    LayerTime,
    OperatorShape,
    OperatorType,
    ProfileCollective,
    StepRow,
    read_collectives,
    read_kernels,
    read_steps,
)
from ms_tune.readers.scopes import ScopePass, shorten_scope

STEPS = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,Preparing"
KERNELS = "Step Id, Stream ID ,Name,Type,Accelerator Core,Start Time(us),Duration(us)"


def file(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


class TestSteps:
    def test_each_column(self, tmp_path: Path) -> None:
        path = file(tmp_path, "steps.csv", "\ufeff" + STEPS, "7,10,2,1,3,4,16,5,6", " 8 ,10.5,,0,,4,14.5,,")
        assert read_steps(path) == [
            StepRow("7", "rank", "", 10, 2, 3, 4, 16, 5),
            StepRow("8", "rank", "", 10.5, 0, 0, 4, 14.5, 0),
        ]

    @pytest.mark.parametrize(("stage", "bubble", "error"), [(16, 0, 0), (10, 6, 0), (15, 0, 1), (12, 1, 3), (20, 3, 4)])
    def test_whether_it_adds_up(self, stage: float, bubble: float, error: float) -> None:
        row = StepRow("", "rank", "", 10, 2, 3, 4, stage, bubble)
        assert (row.whole_us, row.error_us) == (16, error)

    @pytest.mark.parametrize("row", ["7,,2,1,3,4,16,5,6", "7,1,2,1,3,x,16,5,6", "7,1e18,2,1,3,4,1,5,6", "7,1,2"])
    def test_a_row_without_what_counts(self, tmp_path: Path, row: str) -> None:
        path = file(tmp_path, "steps.csv", STEPS, "7,10,2,1,3,4,16,5,6", row)
        with pytest.raises(TraceError) as expected:
            read_steps(path)
        assert expected.value.line == 3

    def test_so_many_rows_are_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(profile_tables, "_MOST_ROWS", 2)
        path = file(tmp_path, "steps.csv", STEPS, *(f"{step},10,2,1,3,4,16,5,6" for step in range(4)))
        assert [one.step for one in read_steps(path)] == ["0", "1"]

    def test_no_file_and_no_table(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError):
            read_steps(tmp_path / "absent.csv")
        with pytest.raises(TraceError, match="Computing, Free"):
            read_steps(file(tmp_path, "empty.csv"))


class TestKernels:
    def test_what_computes_is_counted(self, tmp_path: Path) -> None:
        path = file(
            tmp_path,
            "kernels.csv",
            KERNELS,
            "1,2,MatMul_1,MatMul,AI_CORE,0,10",
            "1,2,MatMul_2,MatMul,AI_CORE,0,9.5",
            "1,3, Add_2 ,,AI_CPU,0,30",
            "1,3,Cast_2,Cast,AI_CPU,0,1",
            "1,,Sub_2,Sub,,0,2",
            "1,4,x,Hcom_send,AI_CORE,0,100",
            "1,4,hccl_x,,AI_CORE,0,100",
            "1,4,send,send,HCCL,0,100",
            "1,4,send,send,COMMUNICATION,0,100",
            "1,2,MatMul_3,MatM",
        )
        found = read_kernels(path)
        assert (found.count, found.microseconds) == (5, 52.5)
        assert found.types == (
            OperatorType("Add_2", "AI_CPU", 1, 30),
            OperatorType("MatMul", "AI_CORE", 2, 19.5),
            OperatorType("Sub", "N/A", 1, 2),
            OperatorType("Cast", "AI_CPU", 1, 1),
        )
        assert found.streams == {"2": (2, 19.5), "3": (2, 31.0)}
        assert (found.cores, found.cut_off, found.layers) == (True, True, ())

    def test_a_table_of_level_0(self, tmp_path: Path) -> None:
        found = read_kernels(file(tmp_path, "kernels.csv", "Name,Duration(us)", "Add_2,3"))
        assert (found.cores, found.cut_off, found.streams) == (False, False, {})
        assert found.types == (OperatorType("Add_2", "N/A", 1, 3),)

    def test_shapes_that_take_longest(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(profile_tables, "_MOST_SHAPES", 2)
        shapes = ['"""8,4096"""', '"""8,4096"""', '"""16,4096;4096,8"""', '"""2"""', "N/A", ""]
        rows = [f"MatMul,AI_CORE,{10 * (place + 1)},{one}" for place, one in enumerate(shapes)]
        head = "Name,Accelerator Core,Duration(us),Input Shapes"
        (one, other) = read_kernels(file(tmp_path, "kernels.csv", head, *rows, "Add,AI_CORE,1,")).types
        assert one.shapes == (OperatorShape("2", 1, 40), OperatorShape("8,4096", 2, 30))
        assert (one.count, one.microseconds, other.shapes) == (6, 210, ())

    def test_scopes_after_what_launched_them(self, tmp_path: Path) -> None:
        # As MindSpore's exporter names kernels that its host activity was captured with.
        launch, behind = "Kernel::KernelLaunch::", "/aclnnMatmul_MatMulV3_MatMulV3"
        scope = "Default/network-Net/model-GPTModel/{}/Linear-op1"
        main, own = "decoder-Block/layers-CellList/1-Layer", "mtp-MtpBlock/layers-CellList/1-MtpLayer/model-Layer"
        names = [scope.format(main), f"Gradients/{scope.format(main)}", f"recompute_{scope.format(main)}"]
        names += [f"Gradients/recompute_{scope.format(own)}"]
        names += ["Default/network-Net/_backbone-PipelineCell/micro_inputs-CellList/0-_MicroBatch/StridedSlice-op3"]
        rows = [f"1,2,{launch}{name}{behind},MatMul,AI_CORE,0,{2**place}" for place, name in enumerate(names)]
        found = read_kernels(file(tmp_path, "kernels.csv", KERNELS, *rows)).layers
        assert found == (
            LayerTime(
                "decoder.layers.1",
                ("decoder", "layers"),
                1,
                3,
                {ScopePass.FORWARD: 1, ScopePass.BACKWARD: 2, ScopePass.RECOMPUTE: 4},
            ),
            LayerTime("mtp.layers.1", ("mtp", "layers"), 1, 1, {ScopePass.BACKWARD: 8}),
        )

    def test_so_many_types_and_layers_are_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(profile_tables, "_MOST_TYPES", 1)
        monkeypatch.setattr(profile_tables, "_MOST_LAYERS", 1)
        rows = [
            f"1,2,layers-CellList/{layer}-Block/x,{kind},AI_CORE,0,1" for layer, kind in ((0, "A"), (1, "B"), (0, "A"))
        ]
        found = read_kernels(file(tmp_path, "kernels.csv", KERNELS, *rows))
        assert found.types == (OperatorType("A", "AI_CORE", 2, 2),)
        assert [(one.name, one.count) for one in found.layers] == [("layers.0", 2)]
        assert found.count == 3


class TestCollectives:
    def read(self, folder: Path, data: object) -> list[ProfileCollective]:
        return read_collectives(file(folder, "communication.json", json.dumps(data)))

    def test_each_figure(self, tmp_path: Path) -> None:
        times = {"Elapse Time(ms)": 2.5, "Transit Time(ms)": 0.5}
        operators = {
            "hcom_send__1@23@4": {"Communication Time Info": times},
            "Total Op Info": {"Communication Time Info": times},
        }
        short = {"a": {"Communication Time Info": {"Elapse Time(ms)": 1, "Transit Time(ms)": None}}}
        short |= {"b": {"Communication Time Info": {"Transit Time(ms)": 1}}, "c": {}, "d": None}  # type: ignore[dict-item]
        found = self.read(
            tmp_path, {"step1": {"p2p": operators, "collective": short}, "step2": [], "step3": {"p2p": 1}}
        )
        assert [one._replace(key="") for one in found] == [
            ProfileCollective("hcom_send__1", "step1", point_to_point=True, elapsed=2500, transit=500),
            ProfileCollective("a", "step1", point_to_point=False, elapsed=1000, transit=0),
        ]
        assert [one.elapsed - one.transit for one in found] == [2000, 1000]
        assert self.read(tmp_path, [1, 2]) == []

    def test_what_cannot_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(TraceError):
            read_collectives(tmp_path / "absent.json")
        with pytest.raises(TraceError) as expected:
            read_collectives(file(tmp_path, "communication.json", "{", "x"))
        assert expected.value.line == 2
        with pytest.raises(TraceError):
            read_collectives(file(tmp_path, "communication.json", "[" * 200_000))
        path = file(tmp_path, "communication.json", "{}")  # three bytes
        for most in (2, 3):
            monkeypatch.setattr(profile_tables, "_MAX_JSON", most)
            if most == 2:
                with pytest.raises(TraceError):
                    read_collectives(path)
            else:
                assert read_collectives(path) == []


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("aclnnMuls_MulAiCore_Mul", "aclnnMuls_MulAiCore_Mul"),
        ("torch/nn/module.py", "torch/nn/module.py"),
        ("Default/net-Net/decoder-Block/layers-CellList/11-Layer/mlp-Mlp/MatMul-op7", "layers.11/MatMul-op7"),
        ("Kernel::KernelLaunch::Gradients/Default/net-Net/layers-CellList/3-Layer/Mul-op1/aclnnMul", "Gradients/layers.3/Mul-op1"),
        ("Default/net-Net/optimizer-AdamW/Assign-op2", "…/Assign-op2"),
        ("", ""),
    ],
)  # fmt: skip
def test_names_in_short(name: str, short: str) -> None:
    assert shorten_scope(name) == short
