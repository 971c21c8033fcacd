from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.readers.runtime_log import MemoryStatistics, OutOfMemory, PoolState, RuntimeLog, read_runtime_log
from tests.readers.samples import log_of

C_LINE = (
    "[WARNING] DEVICE(11331,7fb058642e40,python):2026-11-20-23:25:04.774.524 [mindspore/ccsrc/a.cc:271] DeInitialize] "
)


def statistics(peak: int, actual: int, device: int = 65536, used: int = 61430) -> str:
    return (
        f"{C_LINE}Ascend Memory Adapter deinitialize success, statistics:\n"
        f"Device MOC memory size: {device}M\n"
        f"MindSpore Used memory size: {used}M\n"
        "MindSpore memory base address: 0x7ffd89d5ddd7\n"
        f"Used peak memory usage (without fragments): {peak}M\n"
        f"Actual peak memory usage (with fragments): {actual}M\n\n"
    )


def read(tmp_path: Path, text: str) -> RuntimeLog:
    path = tmp_path / "log"
    path.write_text(text)
    return read_runtime_log(path)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("asc2", (65536, 61430, 2, 3)),
        ("asc_comm/rank_3", (65536, 61430, 2, 2)),
        ("asc_gO0", (65536, 61430, 9, 9)),
        ("nn_cnn_pynative", (65536, 61430, 34, 34)),
        ("over_limit", (65536, 4096, 8192, 8192)),
        ("v_simple", (65536, 61430, 2, 3)),
    ],
)
def test_real_logs_of_good_runs(run: str, expected: tuple[int, int, int, int]) -> None:
    path = log_of(run)
    assert path is not None
    # Each has harmless errors: no CANN, NumPy 2.
    log = read_runtime_log(path)
    assert log == RuntimeLog(MemoryStatistics(*expected), None, processes=log.processes)
    assert [one.ranks_by_group for one in log.processes] == ([{"hccl_world_group": 8}] if "comm" in run else [])


def test_the_last_complete_statistics_win(tmp_path: Path) -> None:
    two = statistics(10, 20) + statistics(30, 40)
    assert read(tmp_path, two).statistics == MemoryStatistics(65536, 61430, 30, 40)
    cut = two + statistics(50, 60).split("Used peak")[0]
    assert read(tmp_path, cut).statistics == MemoryStatistics(65536, 61430, 30, 40)


def test_zeros_of_a_pool_that_is_torn_down_do_not_count(tmp_path: Path) -> None:
    assert read(tmp_path, statistics(10, 20) + statistics(0, 0, 0, 0)).statistics == MemoryStatistics(
        65536, 61430, 10, 20
    )
    assert read(tmp_path, statistics(10, 20) + statistics(0, 0)).statistics == MemoryStatistics(65536, 61430, 10, 20)
    assert read(tmp_path, statistics(0, 0)).statistics == MemoryStatistics(65536, 61430, 0, 0)
    assert read(tmp_path, statistics(0, 0, 0, 0)).statistics is None


def test_older_words_colours_and_lines_in_between(tmp_path: Path) -> None:
    text = (
        "Device HBM memory size: 32768M\n\x1b[33msome other line\x1b[0m\nMindSpore Used memory size: 30000M\n"
        "Total Static Memory size: 5M\n\x1b[1mUsed peak memory usage (without fragments): 7M\n"
        "Actual peak memory usage: 9M\n"
    )
    assert read(tmp_path, text).statistics == MemoryStatistics(32768, 30000, 7, 9)


def test_statistics_of_two_processes_that_got_mixed_are_not_guessed(tmp_path: Path) -> None:
    first, second = statistics(10, 20).splitlines(), statistics(30, 40).splitlines()
    mixed = "\n".join(line for pair in zip(first, second, strict=True) for line in pair)
    assert read(tmp_path, mixed).statistics is None


def test_exception_of_a_real_run(tmp_path: Path) -> None:
    # MindSpore 2.9.0
    text = """Traceback (most recent call last):
  File "/workspace/boom.py", line 7, in <module>
    print(Net()(mint.zeros((2,4))).shape)
          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: For 'MatMulExt' op, shape1[-1] must be equal to shape2[-2], but got 4 and 3.

----------------------------------------------------
- C++ Call Stack: (For framework developers)
----------------------------------------------------
mindspore/ops/infer/ops_func_impl//matmul_ext.cc:43 CheckMatMulShapes
"""
    expected = "RuntimeError: For 'MatMulExt' op, shape1[-1] must be equal to shape2[-2], but got 4 and 3."
    assert read(tmp_path, text + statistics(1, 2)).last_error == expected
    assert read(tmp_path, text[: text.index("\n\n----")]).last_error == expected


def test_exception_whose_message_is_in_sections(tmp_path: Path) -> None:
    text = """Traceback (most recent call last):
  File "/workspace/train.py", line 3, in <module>
[WARNING] ME(1:2,MainProcess):2026-11-20-23:20:08.841.000 [mindspore/context.py:4] in between
    train()
RuntimeError:
----------------------------------------------------
- Memory not enough:
----------------------------------------------------
Device(id:0) memory isn't enough and alloc failed, kernel name: Default/MatMul-op0, alloc size: 1073742336B.

----------------------------------------------------
- C++ Call Stack: (For framework developers)
----------------------------------------------------
mindspore/ccsrc/a.cc:160 Run
step 7, loss 0.1
"""
    assert read(tmp_path, text).last_error == (
        "RuntimeError:\nMemory not enough:\n"
        "Device(id:0) memory isn't enough and alloc failed, kernel name: Default/MatMul-op0, alloc size: 1073742336B."
    )


def test_what_follows_an_exception_is_not_its_message(tmp_path: Path) -> None:
    text = "Traceback (most recent call last):\n  File 'a'\nValueError: bad\n\nfinished\n"
    assert read(tmp_path, text).last_error == "ValueError: bad"
    chained = text + "\nDuring handling of the above exception, another exception occurred:\n\n"
    chained += "Traceback (most recent call last):\n  File 'b'\nKeyError: 'x'\n"
    assert read(tmp_path, chained).last_error == "KeyError: 'x'"


_GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/w/train.py", line 3, in <module>
  |     f()
  |   File "/w/train.py", line 2, in f
  |     raise ExceptionGroup("many", [ValueError("a"), ExceptionGroup("in", [TypeError("b")])])
  | ExceptionGroup: many (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/w/train.py", line 9, in g
    |     raise ValueError("a")
    | ValueError: a
    +---------------- 2 ----------------
    | ExceptionGroup: in (1 sub-exception)
    +-+---------------- 1 ----------------
      | TypeError: b
      +------------------------------------
"""
_LIBRARY = "/venv/lib/python3.11/site-packages/mindspore/mint/__init__.py"


@pytest.mark.parametrize(
    ("text", "error", "place"),
    [
        # as CPython 3.11 prints them
        (
            "  File \"/w/train.py\", line 4\n    x = (\n        ^\nSyntaxError: '(' was never closed\n",
            "SyntaxError: '(' was never closed",
            "/w/train.py:4",
        ),
        (
            ('Traceback (most recent call last):\n  File "/w/train.py", line 1, in <module>\n    import a\n'
            '  File "/w/a.py", line 2\n    y\nIndentationError: unexpected indent\n'),
            "IndentationError: unexpected indent",
            "/w/a.py:2",
        ),
        (_GROUP, "ExceptionGroup: many (2 sub-exceptions)\nValueError: a\nExceptionGroup: in (1 sub-exception)\nTypeError: b", "/w/train.py:2"),
        (
            ('Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    raise Foo()\n'
            "Foo: <exception str() failed>\n"),
            "Foo: <exception str() failed>",
            "train.py:3",
        ),
        (
            'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    raise KeyboardInterrupt\nKeyboardInterrupt\n',
            "KeyboardInterrupt",
            "train.py:1",
        ),
        (
            f'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n  File "{_LIBRARY}", line 9, in f\nValueError: b\n',
            "ValueError: b",
            "train.py:7",
        ),
        (f'Traceback (most recent call last):\n  File "{_LIBRARY}", line 9, in f\nValueError: b\n', "ValueError: b", None),
        ('  File "note.txt", line 4\nof the program\n', None, None),
        ("Segmentation fault\n", "Segmentation fault", None),
        (
            ('Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n'
            f'  File "{_LIBRARY}", line 9 in f\n  File "/w/train.py", line 8 in <module>\n  File "/w/train.py", line 9 in <module>\n'),
            "Fatal Python error: Segmentation fault",
            "/w/train.py:8",
        ),
        (
            'size? Traceback (most recent call last):\n  File "train.py", line 2, in <module>\nEOFError: EOF when reading a line\n',
            "EOFError: EOF when reading a line",
            "train.py:2",
        ),
    ],
)  # fmt: skip
def test_what_python_prints_and_the_programs_own_line(
    tmp_path: Path, text: str, error: str | None, place: str | None
) -> None:
    log = read(tmp_path, "step 1\n" + text + statistics(1, 2))
    assert (log.last_error, log.raised_at) == (error, place)


def test_an_exception_that_ends_a_thread(tmp_path: Path) -> None:
    trace = 'Traceback (most recent call last):\n  File "train.py", line 2, in f\nValueError: {}\n'
    text = "Exception in thread Thread-1 (f):\n" + trace.format("one") + "\n" + trace.format("two")
    assert read(tmp_path, text).thread_error == "train.py:2: ValueError: one"
    assert read(tmp_path, text).last_error == "ValueError: two"
    assert read(tmp_path, trace.format("two")).thread_error is None


def test_exceptions_that_python_ignores(tmp_path: Path) -> None:
    text = "Exception ignored in: <function f at 0x1>\nTraceback (most recent call last):\n  File 'a'\nTypeError: x\n"
    assert read(tmp_path, text).last_error is None


def test_logged_errors(tmp_path: Path) -> None:
    error = "[ERROR] GE_ADPT(123,7f03bf3d8e40,python):2026-11-20-23:20:12.489.242 [mindspore/ccsrc/b.cc:72] "
    text = f"{error}operator()] Compile graph failed\n{error}LoadDynamicLib] Dynamically load symbol aclFoo failed\n"
    assert read(tmp_path, text).last_error == "Compile graph failed (b.cc:72)"
    python = "2026-11-21 00:03:32,224 - mindformers/output/log[mindformers/a.py:31] - ERROR - no such model\n"
    assert read(tmp_path, text + python).last_error == "no such model"
    assert read(
        tmp_path, python + "Traceback (most recent call last):\n  File 'a'\nOSError: y\n" + text
    ).last_error == ("OSError: y")


@pytest.mark.parametrize(
    "line",
    [
        "Fatal Python error: Segmentation fault",
        "Segmentation fault (core dumped)",
        "terminate called after throwing an instance of 'std::runtime_error'",
        "posttrain_gpt.py: error: unrecognized arguments: --simpo-beta 2.5",
    ],
)
def test_crashes(tmp_path: Path, line: str) -> None:
    assert read(tmp_path, f"step 1\n{line}\n").last_error == line


def test_errors_of_the_tracker_are_no_errors_of_the_run(tmp_path: Path) -> None:
    head = "[ERROR] PRE_ACT(1,7f,python):2026-11-20-23:20:12.489.242 [mindspore/ccsrc/mem_tracker.cc:72] "
    text = (
        f"{head}AddMemInfo] MemoryTracker AddMemInfo failed, task_name:PyNative not found\n"
        f"{head}BindDevicePtr] BindDevicePtr failed, mem_info is nullptr\n"
        f"{head}FreeMemBlock] FreeMemBlock failed, device_addr:0x12 not found\n"
    )
    assert read(tmp_path, text) == RuntimeLog(None, None)


def test_endless_lines_and_messages_are_bounded(tmp_path: Path) -> None:
    text = "x" * 300_000 + "\nTraceback (most recent call last):\n  File 'a'\nValueError: " + "y" * 300_000 + "\n"
    text += "more\n" * 1000
    error = read(tmp_path, text).last_error
    assert error is not None
    assert error.startswith("ValueError: yyy")
    assert len(error) < 1000


def test_of_a_message_the_first_twelve_lines_stay_with_500_characters_each(tmp_path: Path) -> None:
    lines = [f"{number}: {'x' * 600}" for number in range(20)]
    head = "Traceback (most recent call last):\n  File 'a'\n"
    error = read(tmp_path, head + "\n".join(lines) + "\n").last_error
    assert error == "\n".join(line[:500] for line in lines[:12])
    short = "\n".join(str(number) for number in range(12))
    assert read(tmp_path, head + short + "\n").last_error == short
    for crash in ("Segmentation fault", "2026-11-20 - mindformers[a.py:1] - ERROR - "):
        found = read(tmp_path, crash + "y" * 600 + "\n").last_error
        assert found is not None
        assert len(found) == 500


def test_requests_that_failed(tmp_path: Path) -> None:
    text = (
        "#umsg#Framework Error Message:#umsg#Out of Memory!!! Request memory size: 1073742336B, Memory Statistic:\n"
        "#umsg#Memory not enough:#umsg#Device(id:0) memory isn't enough and alloc failed, "
        "kernel name: 0_Default/MatMul-op0, alloc size: 512B.\n"
    )
    assert read(tmp_path, text).out_of_memory == OutOfMemory(1073742336, "0_Default/MatMul-op0")
    assert read(tmp_path, "Allocate workspace memory failed, alloc size:77B\n").out_of_memory == OutOfMemory(77, None)
    assert read(tmp_path, statistics(1, 2)).out_of_memory is None


def test_states_of_the_pool(tmp_path: Path) -> None:
    common = (
        "[MS_RUNTIME_PROF]Common mem pool info: Total allocated mem:{0}M, peak used mem:{1}M, in used mem:{2}M, x\n"
    )
    whole = (
        "[MS_RUNTIME_PROF]The dynamic memory pool total allocated mem:2048M, min addr :0, max addr: 0, "
        "peak used mem:2M, actual peak used mem:3M, in used mem:1M, total used by event mem:0M.\n"
    )
    log = read(tmp_path, common.format(1024, 5, 4) + whole + common.format(0, 0, 0))
    assert log.pools == (PoolState("Common", 1024, 5, 4), PoolState("all", 2048, 2, 1))


def test_pools_without_end_are_not_kept(tmp_path: Path) -> None:
    """MindSpore has few pools; a known pool still gets its last state."""
    line = "The dynamic memory pool[p{0}] total allocated mem:{1}M, peak used mem:1M, in used mem:1M\n"
    text = "".join(line.format(number, 1) for number in range(80)) + line.format(63, 7) + line.format(64, 7)
    pools = read(tmp_path, text).pools
    assert [pool.name for pool in pools] == [f"p{number}" for number in range(64)]
    assert [pool.total_mib for pool in pools] == [1] * 63 + [7]


BLOCKS = "[WARNING] PRE_ACT(1,7f,python):2026-11-01 [mem_tracker.cc:549] DumpMemoryBlock] memory block csv path : /run/m.csv.\n"
TASKS = "[WARNING] PRE_ACT(1,7f,python):2026-11-01 [mem_tracker.cc:592] DumpTaskFile] task csv path: /run/task.csv.\n"


@pytest.mark.parametrize(
    ("text", "expected"), [("", False), (BLOCKS, True), (BLOCKS + TASKS, False), (BLOCKS + TASKS + BLOCKS, True)]
)
def test_a_process_that_was_ended_while_it_wrote_its_blocks(tmp_path: Path, text: str, *, expected: bool) -> None:
    assert read(tmp_path, text).cut_off is expected


def test_a_traceback_after_the_rank_that_raised_it(tmp_path: Path) -> None:
    """MSAdapter prefixes every line with the rank; MindSpore's line about ``te`` came before, and is not the cause."""
    start = (
        "[CRITICAL] ME(1:2,MainProcess):2026-11-22-16:13:26.860.00 [mindspore/run_check/_check_version.py:351] "
        'MindSpore relies on whl package "te" in Ascend AI software package.\n'
    )
    lines = [
        "Traceback (most recent call last):",
        '  File "pretrain_gpt.py", line 309, in <module>',
        "    main()",
        "AssertionError: pipeline_model parallel group is not initialized",
    ]
    text = start + "".join(f"[rank12]: {line}\n" for line in lines)
    assert read(tmp_path, text).last_error == lines[-1]
    assert read(tmp_path, start).last_error is None


@pytest.mark.parametrize("before", ["3: ", "[3]:", "[default3]:", "[1,3]<stderr>:"])
def test_the_rank_before_each_line_is_no_part_of_it(tmp_path: Path, before: str) -> None:
    lines = ["Traceback (most recent call last):", '  File "train.py", line 9, in step', "ValueError: 2: wrong"]
    log = read(tmp_path, "".join(f"{before}{line}\n" for line in lines))
    assert (log.last_error, log.raised_at) == (lines[-1], "train.py:9")
