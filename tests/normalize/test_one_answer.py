"""Check that the table, ``--json``, the map, the legend and ``--as-log`` of one config agree on every layer."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from ms_tune.cli.main import main
from tests.normalize.conversion_cases import random_case

SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))
CASES = 60

# Layer -> its settings: effect, operators by kind with the short names of the table, swap.
Layers = dict[int, dict[str, Any]]

EXPERTS_AND_NONE = r"""
use_legacy: False
run_mode: train
parallel_config: {pipeline_stage: 2}
model: {model_config: {model_type: deepseek_v3, architectures: [DeepseekV3ForCausalLM], num_hidden_layers: 6, first_k_dense_replace: 3,
  num_nextn_predict_layers: 0}}
recompute_config: {recompute: False, select_recompute: {'mlp\.linear_fc1\.matmul': [COUNTS]}}
"""

LLAMA = (
    r"feed_forward\.mul",
    r"feed_forward\.w[13]\.matmul",
    r"feed_forward\.w1\..*ation",
    r".*_norm\.norm",
    "attention",
    r"attention\.flash_attention",
    r"mlp\.mul",
    "feed_forward.mul",
)
DEEPSEEK = (
    r"mlp\.linear_fc1\.matmul",
    r"mlp\.shared_experts\.mul",
    r"mlp\.experts",
    r"mlp\.mul",
    r".*layernorm\.norm",
    r"self_attention\..*\.matmul",
    r"feed_forward\.mul",
)
MODULES = (r"mlp\.linear_fc1", r"mlp\.experts", "mlp", r"self_attention\.linear_.*", "self_attention", r"feed_forward")


def mindformers(random: Random) -> dict[str, Any]:
    stages, chunks = random.randint(1, 3), random.randint(1, 2)
    counts = [[random.randint(1, 4) for _ in range(stages)] for _ in range(chunks)]
    layers = sum(map(sum, counts))
    legacy, known = random.random() < 0.5, random.random() < 0.8
    patterns = LLAMA if legacy else DEEPSEEK
    swap = legacy and random.random() < 0.3

    def value() -> Any:  # noqa: ANN401 - as a config has it
        if swap:
            return sorted(random.sample(range(layers), random.randint(1, layers)))
        return random.choice((True, [[random.randint(0, count) for count in row] for row in counts]))

    def of_patterns() -> Any:  # noqa: ANN401 - as above
        chosen = random.sample(patterns, random.randint(1, 3))
        return {pattern: value() for pattern in chosen if not swap} or {
            pattern: sorted({0, layers - 1}) for pattern in chosen
        }

    offset = [[count - layers // (stages * chunks) for count in row] for row in counts]
    config: dict[str, Any] = {
        "use_legacy": legacy,
        "parallel": {"pipeline_config": {"pipeline_interleave": True, "pipeline_scheduler": "1f1b"}},
        "parallel_config": {"pipeline_stage": stages},
        "recompute_config": {"recompute": random.choice((False, value())) or False},
        "model": {"model_config": {"num_layers": layers, "offset": offset, "pp_interleave_num": chunks}},
    }
    model = config["model"]
    if legacy:
        model["model_config"]["use_flash_attention"] = True
        model["arch"] = {"type": "LlamaForCausalLM" if known else "MineForCausalLM"}
    else:
        model["model_config"] |= {"model_type": "deepseek_v3" if known else "mine"}
        model["model_config"]["first_k_dense_replace"] = random.randint(0, layers)
    for key in ("select_recompute", "select_comm_recompute", "select_recompute_exclude"):
        if random.random() < 0.6 and not (swap and key.endswith("exclude")):
            config["recompute_config"][key] = of_patterns()
    if swap:
        names = random.sample(patterns, 2)
        entries = [{"op_name": name, "backward_prefetch": 2, "layers": value()} for name in names]
        config["swap_config"] = {
            "swap": True,
            "layer_swap": {"backward_prefetch": 3, "layers": value()},
            "op_swap": entries,
        }
    return config


def pynative(random: Random) -> dict[str, Any]:
    config: dict[str, Any] = random_case(random, "mindformers-pynative").source.data
    layers = config["model"]["num_hidden_layers"]
    if config["recompute"]["mode"] == "select" and random.random() < 0.4:
        config["model"]["model_type"] = "mine"
    if random.random() < 0.5:
        config["recompute"]["exclude_op"] = {name: ["0"] for name in random.sample(MODULES, random.randint(1, 3))}
    if config["parallelism"]["pipeline_parallel"] == 1 and layers > 1 and random.random() < 0.7:
        entries = [{"op_name": name, "layers": ["0"]} for name in random.sample(MODULES, 2)]
        config["swap"] = {"enable": True, "layer_swap": [{"layers": ["0"]}] * random.randint(0, 1), "op_swap": entries}
    return config


def mindspeed_ms(random: Random) -> dict[str, Any]:
    config: dict[str, Any] = random_case(random, "mindspeed-ms").source.data
    return config


class Shown:
    """The output of the command about one config in each form."""

    def __init__(self, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["normalize-recompute", "--lang", "en", str(config)]
        self.codes = {main([*arguments, "-v"])}
        self.text = capsys.readouterr().out
        self.codes.add(main([*arguments, "--json"]))
        self.json = json.loads(capsys.readouterr().out)
        self.codes.add(main([*arguments, "--as-log"]))
        captured = capsys.readouterr()
        self.log = captured.out.splitlines()
        self.warned = captured.err
        self.legend = {
            match[1]: match[2] for match in re.finditer(r"^  ([a-z]\d*)\s+(\S.*)$", self._layers(), re.MULTILINE)
        }
        self.layers: Layers = {layer["layer"]: layer for layer in self.json["layers"]}
        self.known = not any(problem["id"] == "as-written" for problem in self.json["problems"])

    def _layers(self) -> str:
        return self.text.partition("Recomputation per layer")[2].partition("Findings")[0]

    def table(self) -> Layers:
        """Return the table with the short names replaced."""
        lines = self._layers().splitlines()
        head = next(line for line in lines if line.lstrip().startswith("stage "))
        starts = {name: head.index(name) for name in head.split()[4:]}
        rows: Layers = {}
        for line in lines[lines.index(head) + 2 :]:
            if not line.strip():
                break
            stage, chunk, layers, count = line.split()[:4]
            first, _, last = layers.partition("-")
            ends = [*list(starts.values())[1:], None]
            cells = {name: line[start:end].split() for (name, start), end in zip(starts.items(), ends, strict=True)}
            numbers = range(int(first), int(last or first) + 1)
            assert len(numbers) == int(count)
            for layer in numbers:
                rows[layer] = {"stage": int(stage), "chunk": int(chunk), **cells}
        return rows

    def patterns(self, words: list[str]) -> list[str]:
        return [self.legend[word] for word in words]

    def map(self) -> tuple[bool, Counter[tuple[int, int]]]:
        """Return whether the map counts full recomputation, and the count of each cell."""
        title, _, rest = self.text.partition("Fully recomputed layers / ")
        full = bool(rest)
        body = rest if full else self.text.partition("communication recomputation / layers, ")[2]
        counts: Counter[tuple[int, int]] = Counter()
        stages: list[int] = []
        chunk = 0
        for line in body.partition("Recomputation per layer")[0].splitlines()[1:]:
            if line.strip().startswith("stage"):
                stages = [int(word) for word in line.split()[1:]]
            elif line.strip().startswith("chunk"):
                chunk = int(line.split()[1])
            elif line.strip():
                for stage, word in zip(stages, line.split(), strict=True):
                    counts[chunk, stage] += int(word.partition("/")[0]) if word != "-" else 0
        assert title
        return full, counts


def check(shown: Shown) -> None:
    assert len(shown.codes) == 1
    rows = shown.table()
    assert rows.keys() == shown.layers.keys()
    for number, layer in shown.layers.items():
        row = rows[number]
        assert (row["stage"], row["chunk"]) == (layer["stage"], layer["chunk"])
        assert row["recompute"] == ["-" if layer["recompute"] == "none" else layer["recompute"]]
        assert shown.patterns(row.get("select", [])) == layer["select_patterns"]
        assert shown.patterns(row.get("comm", [])) == layer["comm_patterns"]
        excludes = layer["select_exclude_patterns"] + layer["comm_exclude_patterns"]
        assert shown.patterns(row.get("exclude", [])) == excludes
        swaps = [
            ("" if name == "layer" else shown.legend[name], int(prefetch))
            for name, _, prefetch in (word.partition("@") for word in row.get("swap", []))
        ]
        assert swaps == [(swap["target"], swap["prefetch"]) for swap in layer["swap"]]
        strongest = "select" if layer["select_patterns"] else "comm" if layer["comm_patterns"] else "none"
        assert layer["recompute"] == ("full" if layer["recompute"] == "full" else strongest)
    full, counts = shown.map()
    counted = ("full",) if full else ("select", "comm")
    expected = Counter((x["chunk"], x["stage"]) for x in shown.layers.values() if x["recompute"] in counted)
    assert +counts == expected
    assert full == any(layer["recompute"] == "full" for layer in shown.layers.values())


def logged(shown: Shown, what: str) -> dict[int, list[str]]:
    """Return the layers for which the log reports this, and the names in it."""
    found = [re.search(rf"Set {what} at layer (\d+)(?:: (.*)|\s.*)?$", line) for line in shown.log]
    return {int(match[1]): (match[2] or "").split(", ") for match in found if match}


def check_log(shown: Shown, config: dict[str, Any], switch: str) -> None:
    """Compare the lines about layers with ``--json``."""
    layers = shown.layers
    everything = config.get("recompute_config", {}).get("recompute") is True and not config.get("swap_config")
    if not everything:  # the static graph does not log that
        assert set(logged(shown, "full recompute")) == {n for n, x in layers.items() if x["recompute"] == "full"}
    for what, key in ((f"select recompute{switch}", "select_patterns"),):
        names = {number for number, layer in layers.items() if layer[key]}
        assert set(logged(shown, what)) == (names if shown.known else set())
    assert shown.known or "shown as written" in shown.warned


def check_static(shown: Shown, config: dict[str, Any]) -> None:
    switch = "" if config.get("swap_config") else " on"
    check_log(shown, config, switch)
    if not shown.known:
        return
    pairs = (
        (f"select comm recompute{switch}", "comm_patterns"),
        ("select recompute exclude", "select_exclude_patterns"),
    )
    for what, key in pairs:
        assert set(logged(shown, what)) == {number for number, layer in shown.layers.items() if layer[key]}
    by_operator = {n for n, x in shown.layers.items() if any(swap["target"] for swap in x["swap"])}
    assert set(logged(shown, "op_swap")) == by_operator


def check_dynamic(shown: Shown, config: dict[str, Any]) -> None:
    # Communication operators are never known here, modules are.
    shown.known = config["model"]["model_type"] != "mine"
    check_log(shown, config, "")
    if shown.known:
        for number, names in logged(shown, "select recompute").items():
            assert names == shown.layers[number]["select_patterns"]
        swapped = {
            n: [s["target"] for s in x["swap"]] for n, x in shown.layers.items() if any(s["target"] for s in x["swap"])
        }
        assert logged(shown, "select swap") == swapped
    whole = {n for n, x in shown.layers.items() if any(not swap["target"] for swap in x["swap"])}
    assert set(logged(shown, "layer swap")) == whole


def check_counts(shown: Shown, _: dict[str, Any]) -> None:
    kinds = (("full_recompute", "full"), ("select_recompute", "select"), ("select_comm_recompute", "comm"))
    for line in shown.log:
        match = re.search(r"in (?:vpp_rank:(\d+), )?pp_rank:(\d+), (full.*)", line)
        assert match or "num layer list" in line or "Num_layers in" in line
        for name, kind in kinds if match else ():
            assert match
            count = re.search(rf"\b{name}_layers is (\d+)", match[3])
            assert count
            cell = (int(match[1] or 0), int(match[2]))
            of_stage = [x for x in shown.layers.values() if (x["chunk"], x["stage"]) == cell]
            key = f"{kind}_patterns"
            assert int(count[1]) == sum(bool(x[key]) if key in x else x["recompute"] == kind for x in of_stage)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "check_lines"),
    [(mindformers, check_static), (pynative, check_dynamic), (mindspeed_ms, check_counts)],
)
def test_every_form_says_the_same(
    make: Callable[[Random], dict[str, Any]],
    check_lines: Callable[[Shown, dict[str, Any]], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    random = Random(SEED)  # noqa: S311 - the same cases every time
    path = tmp_path / "config.yaml"
    selecting = 0
    for _ in range(CASES):
        config = make(random)
        path.write_text(yaml.safe_dump(config))
        shown = Shown(path, capsys)
        assert shown.layers, path.read_text()
        check(shown)
        check_lines(shown, config)
        selecting += any(layer["select_patterns"] for layer in shown.layers.values())
    assert selecting > CASES // 4


@pytest.mark.parametrize(
    ("counts", "selecting", "outcome"),
    [
        ("0, 3", [], ["chunk 0, stage 1, layer 3-5"]),
        ("3, 0", [0, 1, 2], []),
        ("1, 1", [0], ["chunk 0, stage 1, layer 3"]),
    ],
)
def test_layers_without_the_operator_select_nothing(
    counts: str, selecting: list[int], outcome: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(EXPERTS_AND_NONE.replace("COUNTS", counts))
    shown = Shown(path, capsys)
    assert shown.codes == {int(bool(outcome))}
    assert [number for number, layer in shown.layers.items() if layer["recompute"] == "select"] == selecting
    assert list(logged(shown, "select recompute on")) == selecting
    assert sum(shown.map()[1].values()) == len(selecting)
    cells = [problem["message"] for problem in shown.json["problems"] if problem["id"] == "cell-unmatched"]
    assert len(cells) == len(outcome)
    assert all(cell in message for cell, message in zip(outcome, cells, strict=True))
    assert main(["lint", "--lang", "en", str(path)]) == int(bool(outcome))
    assert ("MST434" in capsys.readouterr().out) == bool(outcome)


@pytest.mark.parametrize(
    "text",
    [
        (
            "parallel_config: {pipeline_stage: 2}\nmodel: {model_config: {num_layers: 4}}\n"
            "recompute_config: {recompute: [1, 0]}\nrecompute_config: {recompute: [0, 1]}\n"
        ),
        (
            "parallelism: {pipeline_parallel: 2, pipeline_parallel: 2}\nmodel: {num_layers: 4}\ntraining: {steps: 1}\n"
            "recompute: {mode: full, full_recompute_layer: [0]}\n"
        ),
        (
            "parallel_config: {tensor_model_parallel_size: 2, recompute_config: {recompute: [1], recompute: [2]}}\n"
            "model_config: {num_layers: 4}\n"
        ),
    ],
)
def test_keys_that_are_twice(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    shown = Shown(path, capsys)
    assert shown.codes == {1}
    result = [problem["message"] for problem in shown.json["problems"] if problem["id"] == "duplicate-key"]
    assert len(result) == 1
    assert "duplicate key" in shown.text
    assert "duplicate key" in shown.warned


def test_thousands_of_layers_that_swap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each layer is looked up in each list; ``benchmarks/normalize.py`` measures how the time grows."""
    for count in (500, 2000):
        numbers = list(range(count))
        config = {
            "parallel_config": {"pipeline_stage": 2},
            "model": {"model_config": {"num_layers": count}},
            "swap_config": {"swap": True, "layer_swap": [{"backward_prefetch": 1, "layers": numbers}]},
            "recompute_config": {"recompute": numbers, "select_recompute": {"mul": numbers, "add": numbers}},
        }
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(config, default_flow_style=True))
        assert main(["normalize-recompute", "--json", str(path)]) == 1
        layers = json.loads(capsys.readouterr().out)["layers"]
        assert [layer["layer"] for layer in layers if layer["recompute"] == "full"] == numbers
