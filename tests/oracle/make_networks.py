"""Write the last checks of ``checklists/mindformers_stops.yaml`` and that of the dynamic graph: model settings that are refused.

Conditions are read from ``TransformerConfig`` of each release by :mod:`tests.oracle.stops`. For each, settings are made that
meet it, and the class itself is built with them (:mod:`tests.oracle.networks_child`): a condition is served for a release
if the class stops with the very text each time. A new release needs ``python -m tests.oracle.make_networks`` only.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ms_tune.enums import Dialect
from ms_tune.facts.query import served
from ms_tune.lint.expressions import Scope, evaluate, is_true
from ms_tune.lint.rows import parse_expression
from tests.oracle import wheels
from tests.oracle.make_parts import PATHS, write_rows
from tests.oracle.make_stops import names_in, says, values_in
from tests.oracle.stops import Stop, stops_of

if TYPE_CHECKING:
    from ms_tune.dialects.check_context import CheckContext

FIGURES = Path(__file__).parents[1] / "data" / "mindformers_network_stops.json"
IDS = {Dialect.MINDFORMERS: "MST595", Dialect.MINDFORMERS_PYNATIVE: "MST596"}
_FILE = "mindformers/parallel_core/transformer_config.py"
# Fields that the framework sets from other sections, or computes.
_ELSEWHERE = frozenset({
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
    "context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size", "sequence_parallel",
    "npu_nums_per_device", "recompute_slice_activation", "recompute", "micro_batch_num", "multi_latent_attention", "bf16", "fp16",
})  # fmt: skip
_NUMBERS = (1, 2, 3, 9, 0, -1, -2, 0.5, 1.5)
_OTHERS = (None, True, False, "other", (1,) * 8, (), (-2, 0), ("other",))
_BASE = {"num_layers": 8, "num_attention_heads": 4, "hidden_size": 64}
# Settings that many conditions need to be reached at all.
_BESIDE: tuple[dict[str, Any], ...] = (
    {},
    {"num_moe_experts": 8, "add_bias_linear": False, "moe_router_num_groups": 4, "actual_vocab_size": 100},
    {"csa_compress_ratios": (0,) * 8, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 192, "dsa_indexer_head_dim": 128, "dsa_indexer_n_heads": 64},
)  # fmt: skip
_KINDS_OF_VALUES = {"bool", "dict", "float", "int", "list", "str"}  # in conditions
_MOST = 20_000
_SHOWN = 3  # settings that are run for a condition


class Release:
    """The class of a release, in a process."""

    def __init__(self, release: str, folder: Path) -> None:
        wheel = wheels.wheel(release)
        assert isinstance(wheel, Path), wheel
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        self.release, self.folder = release, folder
        command = [sys.executable, "-u", str(Path(__file__).with_name("networks_child.py"))]
        self.child = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.defaults: dict[str, dict[str, Any]] = self._read()

    def _read(self) -> Any:  # noqa: ANN401 - JSON
        assert self.child.stdout is not None
        return json.loads(next(line for line in self.child.stdout if line.startswith("@"))[1:])

    def build(self, kind: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Return how the class ends, in the form of :func:`tests.oracle.make_stops.says`."""
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps([kind, {**_BASE, **settings}]) + "\n")
        self.child.stdin.flush()
        answer = self._read()
        return {"stopped": "build", **dict(zip(("exception", "text", "where"), answer, strict=True))} if answer else {}

    def stops(self) -> Iterator[tuple[str, Stop]]:
        """Yield the stops, each with the class whose validation has it."""
        fields = frozenset(name for values in self.defaults.values() for name in values) - _ELSEWHERE
        tree = ast.parse((self.folder / _FILE).read_text("utf-8"))
        starts = {one.lineno: one.name for one in tree.body if isinstance(one, ast.ClassDef)}
        for stop in stops_of(self.folder, [_FILE], fields, "network"):
            yield starts[max(line for line in starts if line <= stop.line)], stop

    def served(self, kind: str, stop: Stop) -> bool:
        """Return whether the class stops with all settings that were made for the condition, and so with one of them."""
        tree = parse_expression(stop.condition)
        asked = ((one, beside) for one in self.defaults if kind in ("TransformerConfig", one) for beside in _BESIDE)
        answers = [
            self.build(one, settings)
            for one, beside in asked
            for settings in islice(self.solutions(one, tree, beside), _SHOWN)
        ]
        return all(answers) and any(says(one, stop) for one in answers)

    def solutions(self, kind: str, tree: Sequence[Any], beside: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield settings that meet a condition, the fewest first."""
        names = fields_in(tree)
        beside = {name: value for name, value in beside.items() if name in self.defaults[kind]}
        start = {name: {**_BASE, **beside}.get(name, self.defaults[kind].get(name)) for name in names}
        own = [one for one in values_in(tree) if one not in _KINDS_OF_VALUES]
        numbers = [one for one in own if isinstance(one, int | float) and not isinstance(one, bool)]
        near = [one + more for more in (0, 1, -1) for one in numbers]
        choices = [json.loads(one) for one in dict.fromkeys(map(json.dumps, (*near, *_NUMBERS, *own, *_OTHERS)))]
        names.sort(key=_BASE.__contains__)
        count = 0
        for size in range(len(names) + 1):
            for chosen in combinations(names, size):
                for picked in product(choices, repeat=size):
                    count += 1
                    if count > _MOST:
                        return
                    settings = {**beside, **dict(zip(chosen, picked, strict=True))}
                    values = {f"network.{name}": value for name, value in {**start, **settings}.items()}
                    if is_true(evaluate(tree, Scope(cast("CheckContext", None), {}, values))):
                        yield settings

    def close(self) -> None:
        """End the process."""
        self.child.communicate()


def fields_in(tree: Sequence[Any]) -> list[str]:
    """Return the fields in a condition, in its order."""
    return list(dict.fromkeys(name.partition(".")[2] for name in names_in(tree) if "." in name))


def main(folder: Path) -> None:
    """Ask the classes of all releases, and write rows and figures."""
    found: dict[tuple[str, str, str], list[str]] = {}
    lines: dict[tuple[str, str, str], tuple[str, int]] = {}
    figures: dict[str, dict[str, int]] = {}
    for name in reversed(wheels.RELEASES):
        release = Release(name, folder / name)
        count: Counter[str] = Counter()
        for kind, stop in release.stops():
            reason = stop.reason
            if not reason and not release.served(kind, stop):
                reason = "the class goes on with other settings"
            count[f"out of reach: {reason}" if reason else "served"] += 1
            if not reason:
                key = (stop.condition, stop.error, stop.text)
                found.setdefault(key, []).insert(0, name)
                lines.setdefault(key, (name, stop.line))
        figures[name] = dict(sorted(count.items()))
        release.close()
    for dialect, check in IDS.items():
        releases = served(dialect)
        rows = [_row(key, some, lines[key], releases, dialect) for key, some in found.items() if {*some} & {*releases}]
        rows[0] = rows[0].replace("{refuse:", "{asks-others: true, refuse:", 1)
        write_rows(PATHS[dialect], check, rows)
    FIGURES.write_text(json.dumps(dict(reversed(figures.items())), indent=1) + "\n", "utf-8")


def _row(
    key: tuple[str, str, str], found: Sequence[str], line: tuple[str, int], releases: Sequence[str], dialect: Dialect
) -> str:
    condition, error, text = key
    some = [name for name in found if name in releases]
    given = [] if some == [*releases] else [f"framework.release in ({', '.join(some)}{',' * (len(some) == 1)})"]
    given += ["not framework.legacy"] * (dialect is Dialect.MINDFORMERS)
    fields = [f"network.{name}" for name in fields_in(parse_expression(condition))]
    said = f"{error}: {text}".replace("{}", "...").replace("`", "").replace("\\", "")
    let = {
        "release": "framework.release",
        "said": repr(said),
        "file": repr(f"{_FILE}:{line[1]}"),
        "seen": repr(line[0]),
    }
    written = ", ".join(f"{name}: {json.dumps(value)}" for name, value in let.items())
    asked = f", given: {json.dumps(' and '.join(given))}" if given else ""
    at = f", at: [{', '.join(fields)}]"
    return f"      - {{refuse: {json.dumps(condition)}{asked}{at}, let: {{{written}}}}}\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as unpacked:
        main(Path(unpacked))
