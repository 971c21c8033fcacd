"""Measures ``ms-tune dryrun``: the first run, later runs, the same process without ms-tune around it, and four stages.

Run it where the dryrun extra is installed: ``python benchmarks/dryrun.py``. It uses a fresh cache in a temporary folder.
``--stages`` measures four pipeline stages of an eight-layer Qwen3 of the MindFormers wheel instead. ``--against CHECKOUT`` runs
this ms-tune and that of another checkout in turn: the packaged model, and two stages of a MindFormers config.
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
QWEN3 = "configs/qwen3/pretrain_qwen3_32b_4k.yaml"


def timed(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[float, float, str]:
    """Seconds and processor seconds of one whole process and its children, and what it printed."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # 1: it does not fit
        raise RuntimeError(done.stderr)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main() -> None:
    """Run the measurements and print them."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        environment = {**os.environ, "MS_TUNE_CACHE": str(folder / "cache")}
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
    """ms-tune and the bare process in turn, so that both meet the same load."""
    pairs = []
    for _ in range(RUNS):
        seconds, used, printed = timed(ONE, folder, environment)
        pairs.append(((seconds, used), _bare_run(Path(json.loads(printed)["run"]), environment)))
    for number, name in enumerate(("s", "s of processor time")):
        later = statistics.median(pair[0][number] for pair in pairs)
        bare = statistics.median(pair[1][number] for pair in pairs)
        ratio = statistics.median(pair[0][number] / pair[1][number] for pair in pairs)
        print(f"later run, median of {RUNS}        {later:6.1f} {name}")
        print(f"bare process, median of {RUNS}     {bare:6.1f} {name}")
        print(f"later / bare, median          {ratio:6.2f}")
    both, _, _ = timed([*DRYRUN, "--layers", "4"], folder, environment)
    print(f"with extrapolation            {both:6.1f} s")


def _bare_run(run: Path, environment: dict[str, str]) -> tuple[float, float]:
    """The same job in the same environment, started by hand in a new folder."""
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    again = run.parent / f"{run.name}-bare"
    again.mkdir()
    (again / "job.json").write_bytes((run / "rank_0" / "job.json").read_bytes())
    own = {**environment, **manifest["environment"]}
    own["MS_ALLOC_CONF"] = own["MS_ALLOC_CONF"].replace(manifest["working_folder"], str(again))
    seconds, used, _ = timed(manifest["command"], again, own)
    return seconds, used


def _measure_against(other: Path, folder: Path, environment: dict[str, str]) -> None:
    """This checkout and another in turn, so that both meet the same load; each with stand-ins of its own."""
    here = Path(__file__).resolve().parents[1]
    two_stages = ["--set", "parallel_config.pipeline_stage=2", "--set", "model.model_config.offset=0", _qwen3()]
    jobs = {"packaged model, 4 layers": ["--layers", "4"], "two stages, 2 layers each": ["--layers", "2", *two_stages]}
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
    """Four pipeline stages of an eight-layer model."""
    config = _qwen3()
    settings = ["--set", "model.model_config.num_hidden_layers=8", "--set", "model.model_config.offset=0"]
    seconds, used, printed = timed([*DRYRUN, *settings, config], folder, environment)
    stages = json.loads(printed)["stages"]
    print(f"{len(stages)} stages, 8 layers             {seconds:6.1f} s, {used:.1f} s of processor time")


if __name__ == "__main__":
    main()
