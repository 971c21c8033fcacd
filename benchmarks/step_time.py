"""Compare predicted steps with published ones: ``python benchmarks/step_time.py [--all]``; about 10 CPU seconds.

``--calibrate DEVICE`` fits the fractions ``reached`` of ``ms_tune/facts/data/devices.json`` again, to the half of the steps that
calibrates (a quarter of the 226 layouts of one study): the median error by source, with Nelder-Mead, a few CPU minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.stats import spearmanr

from ms_tune.facts.devices import Speed, find_speed
from tests.published_steps import PublishedStep, published_steps

_BOUNDS = {
    "matmul": (0.4, 1.0),
    "attention": (0.15, 1.0),
    "memory": (0.25, 0.92),
    "link": (0.2, 1.0),
    "between": (0.2, 0.9),
    "fused": (0.05, 0.9),
    "launch_us": (1.0, 100.0),
    "hop_us": (2.0, 40.0),
}
_START = (0.8, 0.5, 0.8, 0.8, 0.7, 0.5, 8.0, 20.0)


def main() -> None:
    """Print the errors by source and half, then the rank correlation of the layouts of each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="also print each step")
    parser.add_argument("--calibrate", metavar="DEVICE")
    arguments = parser.parse_args()
    steps = list(published_steps())
    if arguments.calibrate:
        print(json.dumps(calibrate([one for one in steps if one.fitted], arguments.calibrate)))
        return
    errors = {id(one): one.predict().seconds / one.seconds - 1 for one in steps}
    print(
        "| source | device | half | steps | median error | median bias | worst |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for one in steps:
        half = "calibrates" if one.fitted else "held out"
        for source in (one.values["source"], "all"):
            groups[source, one.values["device"], half].append(errors[id(one)])
            groups[source if source == "all" else "", "all", half].append(errors[id(one)])
    for (source, device, half), found in groups.items():
        if source and (source, device) != ("", "all"):
            worst = max(found, key=abs)
            middle = f"{median(map(abs, found)):.1%} | {median(found):+.1%} | {worst:+.0%}"
            print(f"| {source} | {device} | {half} | {len(found)} | {middle} |")
    print_ranks(steps, errors)
    if arguments.all:
        for one in steps:
            words = " ".join(f"{name}={value}" for name, value in one.values.items())
            print(f"{words} published={one.seconds:.2f}s error={errors[id(one)]:+.1%} fitted={one.fitted}")


def print_ranks(steps: Iterable[PublishedStep], errors: dict[int, float]) -> None:
    """Print Spearman's rank correlation between predicted and published times of the layouts of one model on the same devices."""
    models: dict[tuple[object, ...], list[PublishedStep]] = defaultdict(list)
    for one in steps:
        if one.values["source"] == "layouts":
            models[tuple(one.values[name] for name in ("model", "seq", "devices"))].append(one)
    print(
        "\n| model | tokens | devices | layouts | rank correlation | published time of the predicted best, over the best |\n| --- | --- | --- | --- | --- | --- |"
    )
    for model, own in models.items():
        truth = [one.seconds for one in own]
        guess = [one.seconds * (1 + errors[id(one)]) for one in own]
        loss = truth[int(np.argmin(guess))] / min(truth) - 1
        print(f"| {' | '.join(map(str, model))} | {len(own)} | {spearmanr(truth, guess)[0]:.2f} | {loss:+.1%} |")


def calibrate(steps: list[PublishedStep], device: str) -> dict[str, float]:
    """Return the fractions with the least error; each source weighs as the root of its number of steps."""
    base = find_speed(device)
    if base is None:
        sys.exit(f"no such device: {device}")
    own = [one for one in steps if one.values["device"] == device]
    own = [one for at, one in enumerate(own) if one.values["source"] != "layouts" or at % 4 == 0]
    counts = {name: sum(one.values["source"] == name for one in own) for name in {one.values["source"] for one in own}}
    weights = np.array([counts[one.values["source"]] ** -0.5 for one in own])

    def speed_of(values: Iterable[float]) -> Speed:
        pairs = zip(_BOUNDS.items(), values, strict=True)
        reached: dict[str, Any] = {name: float(np.clip(value, *bounds)) for (name, bounds), value in pairs}
        return base._replace(**reached)

    def cost(values: Iterable[float]) -> float:
        logs = [np.log(one.predict(speed_of(values)).seconds / one.seconds) for one in own]
        return float((weights * np.abs(logs)).sum() / weights.sum())

    found = np.array(_START)
    for _ in range(2):
        found = minimize(cost, found, method="Nelder-Mead", options={"maxfev": 200}).x
    return {name: round(getattr(speed_of(found), name), 3) for name in _BOUNDS}


if __name__ == "__main__":
    main()
