"""Test causes on captures with one planted cause each, on clean ones that have none, and on public ones, judged by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ms_tune import analyse_profiles
from ms_tune.facts.query import load
from ms_tune.text import Language, render
from tests.metrics.profiles import CANN, PYTHON, Step
from tests.metrics.test_profile import ALEXNET

GOOD = ("HCCS", 20.97152, 7, 19.1)  # packets as in public captures
CUBE = (20, "4096,4096;4096,4096", 0.76, 0.86, 96.5, 0, 0, 0)
ATTENTION = (20, "4096,1,4096;4096,1,4096", 0.36, 0.6, 98, 0.45, 0.3, 0.2)
VECTOR = (40, "4096,4096", 0, 0, 0, 0.2, 0.92, 0.6)
TINY = (1, "1", 0, 0, 0, 0.05, 0.1, 0.1)


def add_layers(step: Step, layers: int = 6) -> Step:
    """Add layers of a language model, as in a public capture of level 2 (msinsight test/st/level2): nothing is wrong."""
    for _ in range(layers):
        step.kernel(36.0, "RmsNorm_1", core="MIX_AIV", columns=(40, "4096,4096", 0, 0, 0, 0.7, 0.25, 0.2))
        step.kernel(240.0, "MatMulV3_1", columns=CUBE).kernel(31.0, "RotaryPositionEmbedding_1", columns=VECTOR)
        step.kernel(870.0, "FlashAttentionScore_1", core="MIX_AIC", columns=ATTENTION)
        step.kernel(170.0, "MatMulV3_2", columns=CUBE).kernel(6.0, "Cast_1", core="AI_VECTOR_CORE", columns=VECTOR)
        step.kernel(58.0, "SwiGlu_1", core="AI_VECTOR_CORE", columns=VECTOR).kernel(130.0, "MatMulV3_3", columns=CUBE)
        step.kernel(2.0, "Add_1", core="AI_VECTOR_CORE", columns=TINY)
        step.idle(6.0, late=4.0, doing="Node@launch").collective(90.0, 85.0, packets=GOOD)
    return step


def host(name: str, length: float = 1500.0) -> Callable[[Step], object]:
    """Plant a host event during which the device is idle."""
    return lambda step: step.idle(length, late=length - 10, doing=name)


def kernels(
    name: str, length: float, core: str, columns: tuple[object, ...], count: int = 4
) -> Callable[[Step], object]:
    """Plant kernels."""
    return lambda step: [step.kernel(length, name, core=core, columns=columns) for _ in range(count)]


def sequence(*names: str) -> Callable[[Step], object]:
    """Plant kernels one after another, three times."""
    cores = {name: "AI_CORE" if "MatMul" in name else "AI_VECTOR_CORE" for name in names}
    return lambda step: [
        step.kernel(100.0, f"{name}_1", core=cores[name], columns=CUBE if "MatMul" in name else VECTOR)
        for _ in range(3)
        for name in names
    ]


def transfers(*packets: tuple[str, float, int, float]) -> Callable[[Step], object]:
    """Plant exposed collectives with some packets."""
    return lambda step: [step.collective(2500.0, 2450.0, packets=one) for one in packets for _ in range(2)]


def read_a_value(step: Step) -> None:
    """Plant a value that is read while the device computes: the device is idle afterwards."""
    stack = "/usr/lib/python3.11/site-packages/torch/_tensor.py(933): __format__;\r\n/job/train.py(88): log_loss;\r\n/job/train.py(9): main"
    step.event(PYTHON, "aten::item", step.now - 500, 510.0, **{"Call stack": stack})
    step.idle(1500.0, late=1490.0)


def wait_for_each_launch(step: Step) -> None:
    for _ in range(20):
        step.event(CANN, "AscendCL@aclrtSynchronizeStream", step.now - 40, 45.0)
        step.idle(120.0, late=110.0)


def lose_cores(step: Step) -> None:
    for _ in range(30):
        step.event(CANN, "Node@launch", step.now - 30, 25.0)
    for _ in range(2):
        step.idle(1200.0, late=1190.0, doing="Node@launch")


def launch_small_kernels(step: Step) -> None:
    for _ in range(250):
        step.kernel(5.0, "Mul_1", core="AI_VECTOR_CORE", columns=TINY).idle(60.0, late=58.0)


def slow_a_link(step: Step) -> None:
    transfers(("HCCS", 20.97152, 7, 15.0))(step)
    speeds = {f"0-{rank}": 5.2 if rank == 3 else 19.1 for rank in range(1, 8)}
    step.links = {
        pair: {"Transport Type": "HCCS", "Transit Size(MB)": 188.7, "Transit Time(ms)": 188.7 / speed}
        for pair, speed in speeds.items()
    }


def compute_while_communicating(step: Step) -> None:
    """Plant kernels that take twice as long at the same time as a collective as without."""
    for _ in range(6):
        step.kernels.append(f"1,9,hcom_allGather__1_1,hcom_allGather_,HCCL,{step.stamp(step.now)}\t,500.0")
        step.kernel(480.0, "MatMulV3_9", columns=(20, "8192,8192;8192,8192", 0.7, 0.8, 96, 0, 0, 0))
        step.kernel(240.0, "MatMulV3_9", columns=(20, "8192,8192;8192,8192", 0.7, 0.8, 96, 0, 0, 0))


def starve_the_queue(step: Step) -> None:
    step.pipeline = {
        "op_ids": [0, 1, 2],
        "pipeline_ops": ["DeviceQueue(id=0)", "Map(id=1)", "TFRecord(id=2)"],
        "num_workers": [1, 4, 8],
        "queue_empty_freq_pct": [-1, 91.0, 3.0],
        "children_ids": [[1], [2], []],
    }
    step.idle(1500.0, late=1490.0)


PLANTS: dict[str, tuple[str, Callable[[Step], object], str]] = {
    "compiling operators": ("compile", host("AscendCL@aclopCompileAndExecute"), "aclopCompileAndExecute (1.5 ms)"),
    "compiling a graph": ("compile", host("CompileGraph"), "enable_compile_cache"),
    "garbage collection": ("garbage", host("GC"), "gc.disable()"),
    "a slow loader": ("input", host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"), "num_workers"),
    "an empty queue": ("input", starve_the_queue, "empty 91% of the time, because of Map(id=1) with 4 workers"),
    "a kernel that waits for data": ("input", kernels("GetNext_1", 400, "AI_CPU", (1,)), "4 kernels GetNext"),
    "saving": ("checkpoint", host("torch/serialization.py(628): save"), "save less often"),
    "allocating": ("allocation", host("AscendCL@aclrtFreePhysical"), "expandable_segments:True"),
    "a value with its line": ("value", read_a_value, "aten::item (0.51 ms) at /job/train.py(88): log_loss"),
    "asnumpy": ("value", host("Tensor.asnumpy"), "asnumpy()"),
    "launch blocking": ("synchronize", wait_for_each_launch, "unset ASCEND_LAUNCH_BLOCKING"),
    "synchronizing": ("synchronize", host("AscendCL@aclrtSynchronizeDevice"), "synchronize()"),
    "lost cores": ("preempted", lose_cores, "CPU_AFFINITY_CONF=1"),
    "small kernels": ("dispatch", launch_small_kernels, "half of them under 20 us"),
    "the AI CPU": ("aicpu", kernels("Sort_1", 300, "AI_CPU", (1, "4096,50000")), "4 kernels, mostly Sort"),
    "formats": ("conversion", kernels("TransData_1", 300, "AI_VECTOR_CORE", VECTOR), "allow_internal_format = False"),
    "types": ("conversion", kernels("Cast_1", 300, "AI_VECTOR_CORE", VECTOR), "mostly Cast"),
    "a shape that fills few cores": (
        "cube",
        kernels("MatMulV2_1", 400, "AI_CORE", (2, "17,4099;4099,33", 0.05, 0.6, 9.1, 0, 0, 0)),
        "MatMulV2 17,4099;4099,33 uses 9%",
    ),
    "a product bound by memory": (
        "cube",
        kernels("MatMulV2_1", 400, "AI_CORE", (20, "8,4096;4096,9216", 0.1, 0.97, 96, 0, 0, 0)),
        "uses 10%",
    ),
    "few vector cores": (
        "vector",
        kernels("TopKV2_1", 300, "AI_VECTOR_CORE", (4, "4,100000", 0, 0, 0, 0.5, 0.5, 0.5)),
        "uses 10%",
    ),
    "idle vector units": (
        "vector",
        kernels("CumSum_1", 400, "AI_VECTOR_CORE", (40, "4,100000", 0, 0, 0, 0.05, 0.08, 0.05)),
        "uses 8%",
    ),
    "attention in parts": (
        "fusion",
        sequence("BatchMatMulV2", "Muls", "Add", "SoftmaxV2", "BatchMatMulV2"),
        "attention",
    ),
    "RMSNorm in parts": (
        "fusion",
        sequence("Pow", "ReduceMeanD", "Adds", "Rsqrt", "Mul"),
        "3 sequences, mostly rms-norm",
    ),
    "SwiGLU in parts": ("fusion", sequence(*("Slice", "Swish", "Mul") * 4), "swiglu"),
    "Adam in parts": ("fusion", sequence("Muls", "Addcmul", "Sqrt", "Adds", "Addcdiv"), "adam"),
    "slower kernels during communication": ("contention", compute_while_communicating, "2.00 times as long"),
    "a slow link": ("slow-link", slow_a_link, "HCCS 0-3 moves 5.2 GB/s, the others 19.1"),
    "small packets": ("small-packets", transfers(("HCCS", 0.065536, 4000, 7.0)), "8,000 packets over HCCS, 0.066 MB"),
    "unaligned sizes": (
        "unaligned",
        transfers(("HCCS", 20.971, 60, 11.0)),
        "not multiples of 512 bytes: 11 of 19.1 GB/s",
    ),
    "a slow network": ("slow-network", transfers(("RDMA", 20.97152, 60, 6.0)), "RDMA moves 6 of 20 GB/s"),
}
MINDSPORE = ("compiling a graph", "an empty queue", "asnumpy", "a kernel that waits for data")


@pytest.mark.parametrize("name", PLANTS)
def test_the_planted_cause_is_named_and_no_other(tmp_path: Path, name: str) -> None:
    cause, plant, words = PLANTS[name]
    step = add_layers(Step())
    plant(step)
    add_layers(step).write(tmp_path, framework="ms" if name in MINDSPORE else "pt")
    report = analyse_profiles(tmp_path)
    assert [one.cause for one in report.causes] == [cause]
    (found,) = report.causes
    assert words in f"{found.text} {found.remedy}"
    assert load("profile_causes")["least"].get(cause, 0.05) <= found.saves <= found.share <= 1
    assert report.verdict.next_steps[0] == found.remedy
    assert render(found.text, Language.ZH) != str(found.text)


def add_encoder(step: Step) -> Step:
    """Add layers of a convolutional encoder with attention whose ranks are on several machines: nothing is wrong."""
    norm, packets = (40, "8,320,64,64", 0, 0, 0, 0.6, 0.5, 0.4), ("RDMA", 25.0, 8, 23.5)
    for _ in range(5):
        step.kernel(310.0, "Conv2D_1", columns=(20, "8,320,64,64;320,320,3,3", 0.61, 0.7, 93, 0, 0, 0))
        step.kernel(44.0, "GroupNormSilu_1", core="AI_VECTOR_CORE", columns=norm).kernel(420.0, columns=CUBE)
        step.kernel(610.0, "PromptFlashAttention_1", core="MIX_AIC", columns=ATTENTION)
        step.idle(5.0, late=3.0, doing="Dequeue@aclnnConvolution").collective(120.0, 110.0, packets=packets)
    return step


def after(name: str) -> Callable[[Step], object]:
    """Plant a host event behind which the device is idle."""

    def plant(step: Step) -> None:
        step.event(PYTHON, name, step.now - 300, 305.0)
        step.idle(1400.0, late=1390.0)

    return plant


# What else has these causes: the cause, and what is planted; not looked at while the causes were written.
OTHERS: dict[str, Sequence[Callable[[Step], object]]] = {
    "compile": [
        *map(host, ("AscendCL@aclopCompileAndExecuteV2", "torch/_dynamo/convert_frame.py(1064): _compile", "KernelBuild")),
        *map(host, ("torch/_inductor/runtime/triton_heuristics.py(412): compile", "GraphExecutorPy::Compile")),
    ],
    "garbage": [host("<built-in function collect>")],
    "input": [
        *map(host, ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "torch/utils/data/dataloader.py(705): __next__")),
        host("mindspore/dataset/engine/iterators.py(187): __next__"),
    ],
    "checkpoint": [
        *map(host, ("megatron/training/checkpointing.py(391): save_checkpoint", "safetensors/torch.py(286): save_file")),
        host("torch/distributed/checkpoint/state_dict_saver.py(170): save"),
    ],
    "allocation": [*map(host, ("AscendCL@aclrtMallocAlign32", "AscendCL@aclrtUnmapMem", "torch_npu/npu/memory.py(171): empty_cache"))],
    "value": [
        *map(after, ("aten::_local_scalar_dense", "aten::masked_select", "aten::_unique2", "<built-in method cpu of Tensor object>")),
        after("<method 'cpu' of 'torch._C.TensorBase' objects>"),
    ],
    "synchronize": [*map(after, ("AscendCL@aclrtSynchronizeStreamWithTimeout", "torch_npu/npu/utils.py(57): synchronize"))],
    "aicpu": [kernels("Unique_1", 350, "AI_CPU", (1, "65536"))],
    "conversion": [kernels("AsStrided_1", 280, "AI_VECTOR_CORE", VECTOR), kernels("ViewCopy_1", 280, "MIX_AIV", VECTOR)],
    "cube": [
        kernels("Conv2D_7", 500, "AI_CORE", (4, "1,3,224,224;64,3,7,7", 0.2, 0.5, 18, 0, 0, 0)),
        kernels("GroupedMatmul_1", 450, "MIX_AIC", (20, "64,4096;8,4096,1536", 0.12, 0.93, 90, 0, 0, 0)),
    ],
    "vector": [kernels("ScatterAdd_1", 350, "AI_VECTOR_CORE", (48, "100000,64", 0, 0, 0, 0.04, 0.1, 0.09))],
    "fusion": [
        sequence("ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Rsqrt", "Mul"),
        sequence("Neg", "ConcatD", "Mul", "Mul", "Add"),
        sequence("Sub", "Exp", "ReduceSum", "Log", "Sub", "RealDiv"),
    ],
    "small-packets": [transfers(("RDMA", 0.032, 9000, 3.0))],
    "unaligned": [transfers(("RDMA", 33.3333, 40, 9.0))],
    "slow-network": [transfers(("HCCS", 16.777216, 80, 9.0))],
}  # fmt: skip


@pytest.mark.parametrize("cause", OTHERS)
def test_what_else_has_the_cause(tmp_path: Path, cause: str) -> None:
    for place, plant in enumerate(OTHERS[cause]):
        step = add_encoder(Step())
        plant(step)
        add_encoder(step).write(tmp_path / str(place))
        assert [one.cause for one in analyse_profiles(tmp_path / str(place)).causes] == [cause], place


def test_the_raw_table_of_queues_shows_the_same(tmp_path: Path) -> None:
    step = add_layers(Step())
    starve_the_queue(step)
    step.pipeline = None
    rows = ["0,DeviceQueueOp,1,,,,,20,,[1]", "1,MapOp,4,[0],0.4,16,0.02,20,0,[2]", "2,TFReaderOp,8,[9],9,10,0.9,20,1,"]
    head = "op_id,op_type,num_workers,output_queue_size,output_queue_average_size,output_queue_length,"
    head += "output_queue_usage_rate,sample_interval,parent_id,children_id"
    output = add_layers(step).write(tmp_path, framework="ms")
    (output / "minddata_pipeline_raw_0.csv").write_text("\n".join([head, *rows]), "utf-8")
    (found,) = analyse_profiles(tmp_path).causes
    assert "because of MapOp(id=1) with 4 workers" in str(found.text)


def test_clean_captures_have_no_cause(tmp_path: Path) -> None:
    add_layers(Step()).write(tmp_path / "one")
    add_layers(Step()).write(tmp_path / "mindspore", framework="ms")
    for rank in range(4):
        add_layers(Step()).write(tmp_path / "four", rank)
    little = add_layers(Step(), 30)  # a little of each is no cause
    for name in (
        "garbage collection",
        "a slow loader",
        "the AI CPU",
        "RMSNorm in parts",
        "few vector cores",
        "lost cores",
    ):
        PLANTS[name][1](little)
        add_layers(little, 12)
    little.write(tmp_path / "little")
    waiting = add_layers(Step()).collective(6000.0, 90.0, packets=GOOD)  # for a rank that was not captured
    waiting.write(tmp_path / "waiting")
    for folder in sorted(tmp_path.iterdir()):
        assert [str(one.text) for one in analyse_profiles(folder).causes] == [], folder
    assert any("which rank is late" in str(one) for one in analyse_profiles(tmp_path / "waiting").unknown)


@pytest.mark.parametrize(
    ("cause", "late", "early"),
    [
        ("late-work", lambda step: step.kernel(3000.0, "MatMulV3_8", columns=CUBE), lambda _step: None),
        (
            "late-device",
            lambda step: step.kernel(4000.0, "MatMulV3_8", columns=CUBE),
            lambda step: step.kernel(1000.0, "MatMulV3_8", columns=CUBE),
        ),
        ("late-host", lambda step: step.idle(3000.0, late=2990.0), lambda _step: None),
    ],
)
def test_the_late_rank_and_why(
    tmp_path: Path, cause: str, late: Callable[[Step], object], early: Callable[[Step], object]
) -> None:
    for rank in range(4):
        step = add_layers(Step())
        (late if rank == 2 else early)(step)
        step.collective(90.0 if rank == 2 else 3090.0, 85.0, packets=GOOD).write(tmp_path, rank)
    (found,) = analyse_profiles(tmp_path).causes
    assert (found.cause, "rank 2" in str(found.text)) == (cause, True)


def test_stages_of_unequal_work(tmp_path: Path) -> None:
    for rank, layers in enumerate((4, 8)):
        step = add_layers(Step(), layers)
        step.collective(90.0 if rank else 6000.0, 85.0, point_to_point=True).write(tmp_path, rank)
    assert [one.cause for one in analyse_profiles(tmp_path).causes] == ["stages"]


@pytest.mark.skipif(not ALEXNET.is_dir(), reason="the public profiles are not here")
def test_a_public_capture_judged_by_hand() -> None:
    # 205 kernels of 47 us, each launched 139 us after the one before; ranks 2 to 7 of the group were not captured.
    report = analyse_profiles(ALEXNET)
    assert [one.cause for one in report.causes] == ["dispatch"]
    assert ["which rank is late" in str(one) for one in report.unknown] == [True]
