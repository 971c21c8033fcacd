"""Measure ``ms-tune dryrun``: the first run, later runs, the same process without ms-tune around it, and four stages.

Run it where the dryrun extra is installed: ``python benchmarks/dryrun.py``. It uses a new cache in a temporary folder.
``--stages`` measures four pipeline stages of an eight-layer Qwen3 of the MindFormers wheel instead. ``--against
CHECKOUT`` runs this ms-tune and that of another checkout alternately: the packaged model, and two stages of a
MindFormers config.

Two processes serve for comparison: the simulated one as ms-tune starts it, started by hand; and MindSpore alone, with
only the model of ms-tune (``bare_process.py``). Both write the tracker's files, which are not read.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

RUNS = 3
DRYRUN = [sys.executable, "-m", "ms_tune", "dryrun", "--json"]
ONE = [*DRYRUN, "--layers", "4", "--no-extrapolate"]
ALONE = Path(__file__).with_name("bare_process.py")
QWEN3 = "configs/qwen3/pretrain_qwen3_32b_4k.yaml"


def timed(
    command: list[str], folder: Path, environment: dict[str, str], good: tuple[int, ...] = (0, 1)
) -> tuple[float, float, str]:
    """Return wall-clock and processor seconds of a process with its children, and its output; exit code 1 (does not fit) is allowed."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in good:
        raise RuntimeError(done.stderr)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main() -> None:
    """Run the measurements and print them."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # Keep compiled modules, as for an installed package.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = {**kept, "MS_TUNE_CACHE": str(folder / "cache"), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
        first, _, _ = timed(ONE, folder, environment)
        print(f"first run, stand-ins built    {first:6.1f} s")
        if "--stages" in sys.argv:
            _measure_stages(folder, environment)
        elif "--against" in sys.argv:
            _measure_against(Path(sys.argv[sys.argv.index("--against") + 1]), folder, environment)
        else:
            _measure_overhead(folder, environment)
        peak_memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"largest process               {peak_memory:6.0f} MiB resident")


def _measure_overhead(folder: Path, environment: dict[str, str]) -> None:
    """Run ms-tune and its bare process alternately, so that both have the same load; run MindSpore alone once."""
    jobs = {"packaged model, 4 layers": ONE, "one stage of Qwen3, 2 layers": [*DRYRUN, *_one_stage()]}
    for name, command in jobs.items():
        found = json.loads(timed(command, folder, environment)[2])
        run = Path(found["run"])
        alone, turns, share = _bare_run(run, environment, whole=True), [], []
        for number in range(2 * RUNS):
            by_hand = _bare_run(run, environment, whole=False) if number % 2 else None
            seconds, used, printed = timed(command, folder, environment)
            inside = json.loads(printed)["stages"][0]["seconds"]
            share.append((seconds - inside) / inside)
            turns.append(((seconds, used), by_hand or _bare_run(run, environment, whole=False)))
        for number, unit in enumerate(("s", "s of processor time")):
            mine, hand = (statistics.median(turn[at][number] for turn in turns) for at in range(2))
            ratio = statistics.median(turn[0][number] / turn[1][number] for turn in turns)
            print(f"{name}: {mine:.1f} {unit}")
            print(f"  the same process by hand {hand:.1f}, median ratio {ratio:.2f}")
            print(f"  MindSpore alone          {alone[number]:.1f}, ratio {mine / alone[number]:.2f}", flush=True)
        print(f"  beyond the process that it waits for: {statistics.median(share):.1%} of that one's time, median")
    both, _, _ = timed([*DRYRUN, "--layers", "4"], folder, environment)
    print(f"with extrapolation            {both:6.1f} s")


def _one_stage() -> list[str]:
    """Return the first of two stages of a MindFormers config."""
    split = ["--set", "parallel_config.pipeline_stage=2", "--set", "model.model_config.offset=0"]
    return ["--layers", "2", "--no-extrapolate", "--stage", "0", *split, _qwen3()]


def _bare_run(run: Path, environment: dict[str, str], *, whole: bool) -> tuple[float, float]:
    """Run the same job in the same environment, started by hand in a new folder; ``whole``: without ms-tune's changes inside."""
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    again = Path(tempfile.mkdtemp(prefix="bare-", dir=run.parent))
    for file in (run / "rank_0").iterdir():
        if file.is_file():
            (again / file.name).write_bytes(file.read_bytes())
    own = {**environment, **manifest["environment"]}
    own["MS_ALLOC_CONF"] = own["MS_ALLOC_CONF"].replace(manifest["working_folder"], str(again))
    command = manifest["command"]
    if whole:
        command = [command[0], str(ALONE), *command[3:]]
        own.pop("MS_TUNE_WATCHES", None)
    seconds, used, _ = timed(command, again, own, good=(0,))
    return seconds, used


def _measure_against(other: Path, folder: Path, environment: dict[str, str]) -> None:
    """Run this checkout and another one alternately, so that both have the same load; each has its own stand-ins."""
    here = Path(__file__).resolve().parents[1]
    two_stages = ["--set", "parallel_config.pipeline_stage=2", "--set", "model.model_config.offset=0", _qwen3()]
    whole = ["--set", "model.model_config.num_hidden_layers=32", *two_stages]
    jobs = {
        "packaged model, 4 layers": ["--layers", "4"],
        "packaged model, nothing said of layers": [],
        "two stages, 2 layers each": ["--layers", "2", *two_stages],
        "two stages of 16 layers, nothing said of layers": whole,
    }
    own = [
        {**environment, "PYTHONPATH": str(tree), "MS_TUNE_CACHE": str(folder / name)}
        for name, tree in (("here", here), ("other", other.resolve()))
    ]
    for one in own:
        timed([*DRYRUN, "--layers", "1", "--no-extrapolate"], folder, one)
    for name, arguments in jobs.items():
        turns = [[timed([*DRYRUN, *arguments], folder, one)[:2] for one in own] for _ in range(RUNS)]
        for number, kind in enumerate(("s", "s of processor time")):
            mine, theirs = (statistics.median(turn[at][number] for turn in turns) for at in (0, 1))
            ratio = statistics.median(turn[0][number] / turn[1][number] for turn in turns)
            print(f"{name}: {mine:.1f} {kind}, the other checkout {theirs:.1f}, median ratio {ratio:.2f}", flush=True)


def _qwen3() -> str:
    files = metadata.files("mindformers") or []
    return next(str(file.locate()) for file in files if file.as_posix().endswith(QWEN3))


def _measure_stages(folder: Path, environment: dict[str, str]) -> None:
    """Measure four pipeline stages of an eight-layer model."""
    config = _qwen3()
    settings = ["--set", "model.model_config.num_hidden_layers=8", "--set", "model.model_config.offset=0"]
    seconds, used, printed = timed([*DRYRUN, *settings, config], folder, environment)
    stages = json.loads(printed)["stages"]
    print(f"{len(stages)} stages, 8 layers             {seconds:6.1f} s, {used:.1f} s of processor time")


if __name__ == "__main__":
    main()
