"""Simulate small programs of many kinds: figures are correct by arithmetic, or the reason for doubt is reported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ms_tune.native import compile_library
from tests.dryrun.conftest import RealRun, run_dryrun

pytestmark = [pytest.mark.mindspore, pytest.mark.slow, pytest.mark.drawn(9)]  # each starts MindSpore, four seconds

MIB = 2**20
_BEGIN = """
import os, subprocess, sys
import mindspore as ms, numpy as np
from mindspore import Tensor, amp, mint, nn, ops
ms.set_device("Ascend")
"""
# One layer of 64 MiB, so that Adam's state is 128 MiB; without the optimizer the peak stays below 320 MiB.
_LAYER = """
net = nn.Dense(4096, 4096, has_bias=False, weight_init="zeros")
opt = nn.Adam(net.trainable_params(), 1e-3)
def loss(x):
    return net(x).sum()
grad = ms.value_and_grad(loss, None, opt.parameters)
x = mint.zeros((128, 4096))
for _ in range(2):
    value, found = grad(x)
"""
_QUESTIONS = {
    "all_finite": "if amp.all_finite(found): opt(found)",
    "isfinite": "if all(bool(mint.isfinite(one).all()) for one in found): opt(found)",
    "isnan": "if not any(ops.isnan(one).any().item() or bool(mint.isinf(one).any()) for one in found): opt(found)",
    "inverted": "if bool(ops.logical_not(ops.isnan(value))) and mint.isfinite(value).float().item() == 1: opt(found)",
    "counted": "if int(mint.isfinite(found[0]).astype(ms.int32).sum()) == found[0].size: opt(found)",
    # as in MindSpeed-Core-MS r0.1.0
    "reduced": "flag = Tensor(amp.all_finite(found), dtype=ms.int8)\n"
    "    if comm_func.all_reduce(flag, 'prod')[0].astype(ms.bool_): opt(found)",
    "numbers": "flags = [1 - one.isfinite().all().astype(ms.float32) for one in found]\n    if sum(flags) < 1: opt(found)",
}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory, stray_cache: Path) -> Callable[..., RealRun]:
    def run(code: str, *options: str, arguments: tuple[str, ...] = ()) -> RealRun:
        folder = tmp_path_factory.mktemp("program")
        (folder / "train.py").write_text(_BEGIN + code, encoding="utf-8")
        return run_dryrun(folder, stray_cache, "--json", *options, "--", sys.executable, "train.py", *arguments)

    return run


def peaks(run: RealRun) -> list[float]:
    return sorted(rank["peak_bytes"] / MIB for rank in run.json["ranks"])


def places(run: RealRun) -> list[tuple[str, str]]:
    """Return the source lines at which the program reads values, and the operation."""
    lines = (run.folder.parent / "train.py").read_text("utf-8").splitlines()
    return [(lines[read["line"] - 1].strip(), read["how"]) for read in run.json["reads"]]


def test_every_question_whether_all_is_finite_is_answered_with_yes(simulated: Callable[..., RealRun]) -> None:
    """One command starts a process per question, forked before the device is used; each has its own trace."""
    begin = "from mindspore.communication import comm_func, init\ninit()\n"
    parts = {name: f"{begin}{_LAYER}    {code}\n" for name, code in _QUESTIONS.items()}
    code = (
        f"for name, part in {parts!r}.items():\n"
        "    pid = os.fork()\n"
        "    if not pid:\n        exec(part)\n        sys.exit()\n"
        "    print('ASKED', name, *os.waitpid(pid, 0), flush=True)\n"
    )
    run = simulated(code)
    assert run.code == 0, run.err
    asked = re.findall(r"^ASKED (\w+) (\d+) (\d+)$", run.log, re.MULTILINE)
    assert [ended for _, _, ended in asked] == ["0"] * len(parts)
    found = {name: int(pid) for name, pid, _ in asked}
    sizes = {rank["pid"]: rank["peak_bytes"] / MIB for rank in run.json["ranks"]}
    # weight, its gradient temporarily twice, and the two moments
    assert {name: sizes[found[name]] >= 320 for name in parts} == dict.fromkeys(parts, True)
    assert run.json["verdict"] == "fits"
    assert run.json["reads"] == []


def test_no_thread_runs_while_the_program_waits(simulated: Callable[..., RealRun]) -> None:
    code = (
        "import time\nx = mint.zeros((4,)) + 1\nms.runtime.synchronize()\n"
        "begin = time.process_time()\ntime.sleep(1)\nprint('used', time.process_time() - begin)\n"
    )
    run = simulated(code)
    assert run.code == 0, run.err
    (log,) = run.folder.rglob("log.txt")
    (used,) = re.findall(r"^used (.*)$", log.read_text("utf-8"), re.MULTILINE)
    assert float(used) < 0.1  # a busy-waiting thread would use all idle processors


def test_what_follows_from_another_value_is_reported(simulated: Callable[..., RealRun]) -> None:
    code = (
        _LAYER + "    if ops.norm(found[0]).item() > 0.5: opt(found)\n    print(float(value), value)\n"
        # an operator without its own replacement, whose result is unknown
        "places = Tensor([0] * 4096, ms.int32)\nprint(ops.unsorted_segment_max(found[0], places, 4).sum().item())\n"
    )
    run = simulated(code)
    assert places(run) == [
        ("if ops.norm(found[0]).item() > 0.5: opt(found)", "item()"),
        ("print(float(value), value)", "float()"),
        ("print(float(value), value)", "str()"),
        ("print(ops.unsorted_segment_max(found[0], places, 4).sum().item())", "item()"),
    ]


def test_a_loop_that_waits_for_a_value_is_stopped_and_others_are_not(simulated: Callable[..., RealRun]) -> None:
    code = """
x, rounds = mint.zeros((4,)), 0
while rounds < 1000 and not bool(x.sum() > 3):
    rounds += 1
for _ in range(1000):
    x.sum().item()
while True:
    rounds += 1
    if rounds > 1500: break
    if x.sum().item() > 1: break
print("came here")
def wait():
    done = mint.zeros((4,))
    while not bool(done.sum() > 0):
        done = done + 1
wait()
"""
    run = simulated(code)
    assert run.code == 2
    assert "came here" in run.log
    assert run.json["verdict"] is None
    line = (_BEGIN + code).splitlines().index("    while not bool(done.sum() > 0):") + 1
    assert f"train.py:{line}: this loop waits" in run.json["no_verdict_because"]


def test_a_loop_that_a_value_keeps_from_being_entered_has_no_verdict(simulated: Callable[..., RealRun]) -> None:
    """The memory of the training in this loop is missing from the figures."""
    entered = """
x, rounds, loss = mint.zeros((4,)), 0, float("inf")
while loss > 0.1:  # its first round runs, whatever ends it
    loss, rounds = x.sum(), rounds + 1
while (rounds < 4
       and not (x.sum() > 3)):
    rounds += 1
def train(rounds=0):
    while rounds < 3 and (rounds < 2 or x.sum().item() > 5):
        rounds += 1
    return rounds
assert (rounds, train(), sys.gettrace()) == (4, 2, None)
"""
    run = simulated(f"import sys\n{entered}")
    assert run.code == 0, run.log
    assert run.json["verdict"] == "fits"
    skipped = """
step = mint.zeros((1,))
def train():
    while (True and
           step > 0):
        mint.zeros((4,))
train()
"""
    run = simulated(skipped)
    assert run.code == 2
    assert run.json["verdict"] is None
    line = (_BEGIN + skipped).splitlines().index("    while (True and") + 1
    assert f"train.py:{line}: this loop depends on a device value" in run.json["no_verdict_because"]


def test_a_loop_in_a_graph_is_stopped_too(simulated: Callable[..., RealRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MS_TUNE_GRAPH_PATIENCE", "5")
    code = "@ms.jit\ndef f(x, i):\n    while i < 5:\n        x, i = x + 1, i + 1\n    return x\nf(mint.zeros((4,)), Tensor(0))\n"
    run = simulated(code)
    # The watchdog looks at a thread that runs, which may end in a crash: the program is stopped all the same.
    assert run.code in (1, 139)
    assert run.json["verdict"] is None
    assert "train.py:8: this loop waits" in run.json["no_verdict_because"]


def test_a_graph_with_a_condition_is_built_on_few_cores(simulated: Callable[..., RealRun]) -> None:
    code = """
ms.set_context(mode=ms.GRAPH_MODE)
class Loss(nn.Cell):
    def __init__(self):
        super().__init__()
        self.net = nn.Dense(4096, 4096, has_bias=False, weight_init="zeros")
    def construct(self, x):
        return self.net(x).sum()
net = Loss()
step = nn.TrainOneStepWithLossScaleCell(net, nn.Adam(net.trainable_params(), 1e-3), nn.DynamicLossScaleUpdateCell(1024, 2, 100))
step.set_train()
for _ in range(2):
    step(Tensor(np.zeros((128, 4096), np.float32)))
"""
    run = simulated(code)
    assert run.code == 0, run.err
    assert peaks(run)[0] >= 320


def test_a_condition_in_a_graph_is_reported(simulated: Callable[..., RealRun]) -> None:
    code = """
@ms.jit
def on_a_value(x):
    if x.sum() < 0:
        return ops.tile(x, (32, 1)).sum()
    return (ops.tile(x, (512, 1)) + 1).sum()
@ms.jit
def on_a_shape(x):
    return x.sum() if x.shape[0] > 3 else (x + 1).sum()
class Inside(nn.Cell):
    def chosen(self, x):
        if x.max() > 0:
            return x * 2
        return ops.tile(x, (3, 1))
    @ms.jit
    def construct(self, x):
        return self.chosen(x).sum()
for step in (on_a_value, on_a_shape, Inside()):
    step(mint.zeros((1024, 1024)))
"""
    run = simulated(code)
    assert run.code == 0, run.err
    result = "\n".join(run.json["support"])
    assert "graph on_a_value has a condition on a device value" in result
    assert "graph Inside.construct has a condition on a device value" in result
    assert "on_a_shape" not in result
    assert 128 <= peaks(run)[0] < 2048  # the memory of the other branch is not included


def test_the_host_has_room_for_copies_next_to_many_streams(simulated: Callable[..., RealRun]) -> None:
    code = """
x, kept = ms.mint.ones(8), []
for _ in range(60):
    with ms.runtime.StreamCtx(ms.runtime.Stream()):
        kept.append((x + 1).to("CPU", non_blocking=True))
print(len(kept), "copies")
"""
    run = simulated(code)
    assert run.code == 0, run.err


def test_what_is_as_large_as_the_values_say_has_its_upper_bound(simulated: Callable[..., RealRun]) -> None:
    code = """
x = mint.zeros((1024, 1024))
shapes = [one.shape for one in (
    mint.nonzero(x), ops.nonzero(x), x.nonzero(), ops.argwhere(x), *mint.nonzero(x, as_tuple=True), *mint.where(x > 0), mint.where(x > 0, x, x),
    mint.masked_select(x, x > 0), x.masked_select(x[0] > 0), x[x > 0], x[x[:, 0] > 0],
    *mint.unique(x, return_inverse=True, return_counts=True), *ops.unique(x), mint.unique_consecutive(x),
    mint.unique(x, dim=0), ms.grad(lambda z: mint.masked_select(z, z > 0).sum())(x), ms.grad(lambda z: z[z > 0].sum())(x),
)]
print("SHAPES", shapes)
mint.repeat_interleave(x, mint.ones((1024,), dtype=ms.int64), 0)
kept = mint.masked_select(mint.zeros((64, 1024, 1024)), mint.zeros((64, 1024, 1024)) > 0)
"""
    run = simulated(code)
    assert run.code == 0, run.err
    pairs, every = [(1 << 20, 2)] * 4, (1 << 20,)
    one, whole = [every], (1024, 1024)
    expected = [*pairs, *one * 4, whole, *one * 3, whole, every, whole, *one * 2, whole, every, whole, whole, whole]
    shown = next(line for line in run.log.splitlines() if line.startswith("SHAPES"))
    assert shown == f"SHAPES {expected}"
    lines = (run.folder.parent / "train.py").read_text("utf-8").splitlines()
    result = {(place["how"], lines[place["line"] - 1].strip().split("(")[0]) for place in run.json["bounds"]}
    assert ("masked_select", "kept = mint.masked_select") in result
    assert {how for how, _ in result} == {"nonzero", "masked_select", "[mask]", "unique"}
    assert [how for _, how in places(run)] == ["repeat_interleave()"]
    # the operands, the mask and the result: 256 + 256 + 64 + 256 MiB at most, less than 64 MiB of it freed before
    assert peaks(run)[0] >= 256 + 256


def test_processes_of_every_kind_have_a_trace_each(simulated: Callable[..., RealRun]) -> None:
    code = """
import multiprocessing as mp
def work(mib):
    kept = mint.zeros((mib, 1024, 256))
if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(int(sys.argv[1]))
        os._exit(0)
    for kind, mib in (("fork", 2), ("spawn", 4)):
        one = mp.get_context(kind).Process(target=work, args=(mib,)); one.start(); one.join()
    with mp.get_context("fork").Pool(1) as pool:
        pool.map(work, [8])
    subprocess.run([sys.executable, "train.py", "16"], check=True)
    subprocess.Popen([sys.executable, "train.py", "32"], start_new_session=True)  # nobody waits for it
    work(64)
"""
    run = simulated(code)
    assert run.code == 0, run.err
    assert [round(peak) for peak in peaks(run)] == [2, 4, 8, 16, 32, 64]
    assert run.json["problems"] == []
    assert len({rank["trace"] for rank in run.json["ranks"]}) == 6


def test_what_is_forked_late_or_leaves_the_hook_out_is_reported(simulated: Callable[..., RealRun]) -> None:
    code = """
import multiprocessing as mp
def work(mib):
    kept = mint.zeros((mib, 1024, 256)) if mib else None
def fork(mib):
    child = os.fork()
    if not child:
        work(mib)
        sys.exit(0)
    return os.waitpid(child, 0)[1]
print("EARLY", fork(8))
work(4)
ms.runtime.synchronize()
print("LATE", fork(0), fork(32))
one = mp.get_context("fork").Process(target=work, args=(64,)); one.start(); one.join()
work(16)
# Without the hook nobody waits for what MindSpore's threads still do: such a process was seen to end with SIGSEGV, once.
without = subprocess.run([sys.executable, "-X", "faulthandler", "-E", "train.py", "again"], check=False)
print("WITHOUT", without.returncode)
"""
    run = simulated("if len(sys.argv) > 1:\n    kept = mint.zeros((2, 1024, 256))\n    sys.exit()\n" + code)
    assert run.code == 2, run.err
    assert re.search("^WITHOUT (0|-11)$", run.log, re.MULTILINE), run.log
    assert ("EARLY 0" in run.log, "LATE 0 0" in run.log) == (True, True)
    assert [round(peak) for peak in peaks(run)] == [8, 16]
    assert run.json["verdict"] is None
    result = run.json["problems"]
    assert [re.findall(r"and allocated ([0-9.]+ MiB):", text) for text in result[:2]] == [["32.0 MiB"], ["64.0 MiB"]]
    assert [("but reported nothing" in text) for text in result] == [False, False, True]


def test_one_that_is_killed_is_reported_and_there_is_no_verdict(simulated: Callable[..., RealRun]) -> None:
    code = """
kept = mint.zeros((16, 1024, 256))
if len(sys.argv) > 1:
    os.kill(os.getpid(), 9)
subprocess.run([sys.executable, "train.py", "dies"], check=False)
"""
    run = simulated(code)
    assert run.code == 2
    assert peaks(run) == pytest.approx([16], abs=0.1)
    assert run.json["verdict"] is None
    assert "was terminated before its trace" in run.json["no_verdict_because"]


def test_a_forked_one_that_is_killed_is_reported_whenever_it_was_forked(simulated: Callable[..., RealRun]) -> None:
    """A killed process leaves no record; forked processes that end by themselves, or execute another program, are not reported."""
    code = """
import multiprocessing as mp
def fork(then, seconds=0):
    child = os.fork()
    if not child:
        kept = mint.zeros((64, 1024, 256)); ms.runtime.synchronize()
        then()
    return child, os.waitpid(child, 0)[1]
def die():
    os.kill(os.getpid(), 9)
def idle(): pass
early = fork(die)
kept = mint.zeros((16, 1024, 256)); ms.runtime.synchronize()
late = fork(die)
print("KILLED", early[0], late[0], early[1], late[1])
one = mp.get_context("fork").Process(target=idle); one.start(); one.join()
subprocess.run(["true"], preexec_fn=idle, check=True)
os.spawnlp(os.P_WAIT, "sleep", "sleep", "0")
subprocess.run(["sh", "-c", "kill -9 $$"], preexec_fn=idle, check=False)
"""
    run = simulated(code)
    assert run.code == 2, run.err
    assert run.json["verdict"] is None
    (killed,) = re.findall(r"KILLED (\d+) (\d+) 9 9", run.log)
    result = sorted(re.match(r"process (\d+), forked from", text)[1] for text in run.json["problems"])  # type: ignore[index]
    assert result == sorted(killed)
    assert peaks(run) == pytest.approx([16], abs=0.1)


_KILLED = """
_DIES = b"kill -9 $$"
CHILD = "import os, mindspore as ms; ms.set_device('Ascend'); x = ms.mint.zeros((1024, 1024, 16)); os.kill(os.getpid(), 9)"
def fork(use, then=lambda: os.kill(os.getpid(), 9)):
    pid = os.fork()
    if not pid:
        if use: x = mint.zeros((1024, 1024, 16))
        then()
    os.waitpid(pid, 0)
"""
# With Python's lock: without it, the child may get a copy of the lock that a thread which it does not have holds for ever.
# And no thread asks for the lock while another forks: the child would give it to one that it does not have.
_BY_C = "import ctypes; sys.setswitchinterval(1000); os.fork = ctypes.PyDLL(None).fork; "
_IN_THREAD = "import threading; thread = threading.Thread(target={}); thread.start(); thread.join()"


# Each leaves one process to report: by Python without the hook, by libraries without Python, before and after the
# device is used, and in threads, where Python calls no handler in the forked process.
_TOLD = (
    "subprocess.run([sys.executable, '-I', '-c', CHILD])",
    "subprocess.run([sys.executable, '-c', CHILD], env={**os.environ, 'PYTHONPATH': ''})",
    f"fork(True); {_BY_C}fork(True)",
    "x = mint.zeros((64,)); fork(True)",
    _IN_THREAD.format("fork, args=(True,)"),
    _IN_THREAD.format("fork, args=(True, lambda: os._exit(0))"),
)
_NOT_TOLD = (  # they never used the device
    "fork(False)",
    f"{_BY_C}x = mint.zeros((64,)); fork(False, lambda: os.execvp('sh', ['sh', '-c', 'kill -9 $$']))",
    "ctypes.CDLL(None).system(_DIES)",
    _IN_THREAD.format("lambda: ctypes.CDLL(None).system(_DIES)"),
)


@pytest.mark.parametrize(("kills", "outcome"), [(_TOLD, 7), (_NOT_TOLD, 0)], ids=["outcome", "not outcome"])
def test_who_used_the_device_and_is_killed_is_reported_whoever_started_it(
    simulated: Callable[..., RealRun], kills: tuple[str, ...], outcome: int
) -> None:
    run = simulated("\n".join([_KILLED, *kills, "x = mint.zeros((1024, 1024))", ""]))
    assert run.json["verdict"] == (None if outcome else "fits")
    assert len(run.json["problems"]) == outcome


def test_what_a_c_library_forks_is_reported_like_what_python_forks(simulated: Callable[..., RealRun]) -> None:
    """Its parent's trace is not overwritten."""
    ends = "fork(True, lambda: os._exit(0))"
    run = simulated(f"{_KILLED}{_BY_C}kept = mint.zeros((16, 1024, 256)); {ends}\n")
    assert run.json["verdict"] is None
    assert "and allocated 64.0 MiB: no trace" in run.json["no_verdict_because"]
    assert peaks(run) == pytest.approx([16], abs=0.1)


_LATE = """
extern int fork(void), waitpid(int, int *, int), dprintf(int, const char *, ...), on_exit(void (*)(int, void *), void *);
extern void _exit(int);
static void late(int status, void *nothing) {
  int child = fork();
  if (!child) _exit(0);
  waitpid(child, &status, 0);
  dprintf(2, "LATE %d\\n", status);
}
__attribute__((visibility("default"))) void arm(void) { on_exit(late, 0); }
"""


def test_a_library_may_fork_when_python_is_gone(simulated: Callable[..., RealRun], tmp_path: Path) -> None:
    (tmp_path / "late.c").write_text(_LATE, encoding="ascii")
    compile_library(tmp_path / "late.c", tmp_path / "late.so", dict(os.environ))
    run = simulated(f"import ctypes; x = mint.zeros((64,)); ctypes.CDLL({str(tmp_path / 'late.so')!r}).arm()\n")
    assert run.json["verdict"] == "fits"
    assert "LATE 0" in run.log  # 11 if it crashed


def test_a_program_that_becomes_another_one_has_a_trace_of_each(simulated: Callable[..., RealRun]) -> None:
    code = """
if len(sys.argv) > 1:
    kept = mint.zeros((16, 1024, 256))
    sys.exit()
kept = mint.zeros((64, 1024, 256))
try:
    os.execv("no_such_program", ["no_such_program"])
except OSError:
    more = mint.zeros((32, 1024, 256))
os.execvp(sys.executable, [sys.executable, "train.py", "again"])
"""
    run = simulated(code)
    assert run.code == 0, run.err
    assert peaks(run) == pytest.approx([16, 96], abs=0.1)
    assert run.json["verdict"] == "fits"
    assert len({rank["pid"] for rank in run.json["ranks"]}) == 1


def test_variables_that_a_program_sets_for_itself_hide_nothing(simulated: Callable[..., RealRun]) -> None:
    """Neither the tracker nor its statistics are lost: variables set before the import, for a shell's child, or after it."""
    code = """
if len(sys.argv) > 1:
    kept = mint.zeros((64, 1024, 256))
    sys.exit()
os.environ["MS_ALLOC_CONF"] = "enable_vmm:False"
os.environ["GLOG_v"] = "3"
os.environ.pop("MS_MEMORY_STATISTIC")
kept = mint.zeros((16, 1024, 256))
more = {**os.environ, "GLOG_v": "3", "MS_MEMORY_STATISTIC": "0", "MS_SUBMODULE_LOG_v": "{PRE_ACT:3}"}
subprocess.run([sys.executable, "train.py", "again"], check=True, env=more)
"""
    run = simulated(code)
    assert run.code == 0, run.err
    assert peaks(run) == pytest.approx([16, 64], abs=0.1)
    assert run.json["verdict"] == "fits"


def test_what_runs_without_the_environment_of_the_run_is_reported(simulated: Callable[..., RealRun]) -> None:
    code = """
kept = mint.zeros((16, 1024, 256))
subprocess.run([sys.executable, "-c", "import mindspore"], env={"PATH": os.environ["PATH"]}, check=True)
"""
    run = simulated(code)
    assert run.code == 2
    assert peaks(run) == pytest.approx([16], abs=0.1)
    assert "used MindSpore without the environment variables of the run" in run.json["no_verdict_because"]


def test_a_program_that_names_itself_is_none_without_the_environment(simulated: Callable[..., RealRun]) -> None:
    """Like setproctitle: the name overwrites arguments and environment, which remain available elsewhere."""
    code = """
import ctypes, time
for name, value in dict(os.environ).items(): os.putenv(name, value)
begin, end = map(int, open("/proc/self/stat").read().rpartition(")")[2].split()[47:49])
ctypes.memset(begin, 0, end - begin)
kept = mint.zeros((16, 1024, 256))
time.sleep(1)
"""
    run = simulated(code)
    assert run.json["problems"] == []
    assert run.json["verdict"] == "fits"


def test_a_worker_that_fails_while_nobody_asks_is_reported(simulated: Callable[..., RealRun]) -> None:
    code = """
import multiprocessing as mp
def work(number):
    kept = mint.zeros((8 * (number + 1), 1024, 256))
    if number == 1: raise ValueError("ill")
    sys.exit(3 * number)
if __name__ == "__main__":
    workers = [mp.get_context("spawn").Process(target=work, args=(number,)) for number in range(3)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    print("CODES", *(f"{worker.pid}:{worker.exitcode}" for worker in workers))
"""
    run = simulated(code)
    assert run.code == 0, run.err
    (codes,) = re.findall(r"^CODES \d+:0 (\d+):1 (\d+):6$", run.log, re.MULTILINE)
    result = sorted(text.partition(", but")[0] for text in run.json["warnings"])
    assert result == sorted(f"process {pid} failed (exit code {code})" for pid, code in zip(codes, (1, 6), strict=True))


@pytest.mark.parametrize(("then", "outcome"), [("break", 1), ("print(error); raise", 0)])
def test_a_program_that_catches_its_own_lack_of_memory_is_reported(
    simulated: Callable[..., RealRun], then: str, outcome: int
) -> None:
    code = f"""
def probe(gib):
    return mint.zeros((gib, 1024, 1024, 256))
ms.runtime.set_memory(max_size="4GB")
for gib in (1, 2, 5):
    try:
        kept = probe(gib)
    except RuntimeError as error:
        {then}
"""
    run = simulated(code)
    assert run.code == 1
    assert run.json["verdict"] == "does-not-fit"
    assert [("train.py:12 exceeds 4,096.0 MiB" in text) for text in run.json["warnings"]] == [True] * outcome


@pytest.mark.parametrize(
    ("code", "exit_code", "reason"),
    [
        ("kept = mint.zeros((64, 1024, 256))\nraise RuntimeError('out of data')", 1, "RuntimeError: out of data"),
        ("ms.set_context(device_target='CPU')\nprint(mint.zeros((4,)) + 1)", 2, "Ascend back end was not used"),
        ("import no_such_module", 1, "train.py:6: ModuleNotFoundError: No module named 'no_such_module'"),
        ("kept = mint.zeros((2**31, 2**31))", 2, "operator Zeros creates Float32[2147483648, 2147483648]"),
    ],
    ids=["exception", "cpu", "import", "uncountable"],
)
def test_what_goes_wrong_has_no_verdict(
    simulated: Callable[..., RealRun], code: str, exit_code: int, reason: str
) -> None:
    run = simulated(code)
    assert run.code == exit_code
    assert run.json["verdict"] is None
    assert reason in run.json["no_verdict_because"]


@pytest.mark.parametrize(
    ("asks", "limit"),
    [
        ('ms.set_context(max_device_memory="40GB"); ms.runtime.set_memory(max_size="41GB")', 41 * 1024),
        ('ms.runtime.set_memory(max_size="62GB")', None),  # MindSpore refuses it: not below the free memory
        ('ms.runtime.set_memory(max_size="100GB")', 58166),  # it is ignored
        ('mint.zeros(8); ms.runtime.set_memory(max_size="40GB")', 58166),  # it is too late
    ],
)
def test_a_program_is_judged_by_what_a_real_device_would_give_it(
    simulated: Callable[..., RealRun], asks: str, limit: int | None
) -> None:
    """In simulation MindSpore 2.9 ignores more than 32 GB, and its own statistics report 61,430 MiB."""
    run = simulated(f"{asks}\nx = mint.zeros((1024, 1024))\n")
    assert run.json["verdict"] == (None if limit is None else "fits")
    if limit is None:
        assert "would reject" in run.json["no_verdict_because"]
    else:
        assert run.json["limit_bytes"] == limit * MIB


def test_a_trace_that_was_cut_off_has_no_verdict(tmp_path: Path, stray_cache: Path) -> None:
    (tmp_path / "train.py").write_text(
        _BEGIN + "kept = [mint.zeros((1024,)) for _ in range(3000)]\nbig = mint.zeros((1024, 1024, 256))\n", "utf-8"
    )
    environment = {**os.environ, "MS_TUNE_CACHE": str(stray_cache), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 100; {sys.executable} -m ms_tune dryrun -- {sys.executable} train.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "inconclusive" in done.stdout


def test_a_folder_whose_name_mindspore_would_cut(tmp_path: Path, stray_cache: Path) -> None:
    folder = tmp_path / "a,b:c d"
    folder.mkdir()
    (folder / "train.py").write_text(_BEGIN + "kept = mint.zeros((16, 1024, 256))\n", "utf-8")
    run = run_dryrun(folder, stray_cache, "--json", "--", sys.executable, "train.py")
    assert run.code == 0, run.err
    assert peaks(run) == pytest.approx([16], abs=0.1)
    assert sorted(path.name for path in folder.iterdir()) == ["kept", "train.py"]


def test_the_users_own_sitecustomize_is_run(tmp_path: Path, stray_cache: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.of_the_user = 1\n", "utf-8")
    (tmp_path / "train.py").write_text("import sys; print('OWN', sys.of_the_user)\n", "utf-8")
    script = f"PYTHONPATH=$PYTHONPATH:{own} {sys.executable} train.py"
    run = run_dryrun(tmp_path, stray_cache, "--", "bash", "-c", script)
    assert "OWN 1" in run.log


def test_python_that_keeps_the_hook_out_is_reported(tmp_path: Path, stray_cache: Path) -> None:
    run: Any = run_dryrun(tmp_path, stray_cache, "--json", "--", sys.executable, "-I", "-c", "print(1)")
    assert run.code == 2
    assert "imported MindSpore" in run.json["no_verdict_because"]
