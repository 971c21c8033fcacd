"""Compare ms-tune's result for complete dynamic-graph configs with missing keys with the real classes and functions.

Both sides get the text of a config: ms-tune unchanged, and the code inside the wheel, where the model's own config
class, its conversion and its network class state the number of layers and which have experts, and ``apply_ac`` sets
them. The cells of a layer are those of ms-tune's trees, which come from real networks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ms_tune.dialects.operators import Tree, dynamic_model
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.models import model_of
from ms_tune.source.yaml import parse_source
from tests.jobs import dynamic_plan
from tests.oracle import pynative
from tests.oracle.amount import cases
from tests.oracle.cases import as_read, text_of
from tests.oracle.models import Models, Network
from tests.oracle.test_pynative import assert_same_layers
from tests.oracle.whole_cases import ARCHITECTURES, SEED, dynamic_config

CASES = cases(40, 150)
_MODELS = ("qwen3", "deepseek_v3")
_MISSING = pynative.why_missing()
pytestmark = pytest.mark.skipif(_MISSING is not None, reason=str(_MISSING))


class Release:
    """A release of the dynamic graph: its settings, its model classes, the layers of its networks."""

    def __init__(self, version: str, models: Models) -> None:
        self.version = version
        self.oracle = pynative.Oracle(f"{version}.0")
        self._models = models
        found = {name: dynamic_model(name, version) for name in _MODELS}
        self.kinds = {name: model.every for name, model in found.items() if model is not None}
        self.patterns = {name: self._patterns(kinds) for name, kinds in self.kinds.items()}

    @staticmethod
    def _patterns(kinds: tuple[Tree, ...] | Any) -> list[str]:  # noqa: ANN401
        paths = sorted({path for kind in kinds for path in kind.paths()})
        near = [path for path in paths if path.count(".") < 2]
        return [*near, "mlp..*", ".*linear_fc1", "(mlp|self_attention)", r"self_attention\..*proj.*", "nothing"]

    def make_network(self, section: dict[str, Any]) -> Network:
        """Return the result of the model's classes; a missing key that does not concern layers is added."""
        found = self._models.make(section)
        kind = str(section.get("model_type"))
        if found.error is None or kind not in ARCHITECTURES:
            return found
        return self._models.make({**section, "architectures": ARCHITECTURES[kind], "moe_grouped_gemm": True})

    def layer(self, kind: str, made: Network, number: int) -> Tree:
        """Return the tree of a layer."""
        kinds = self.kinds[kind]
        if number < made.layers:
            return kinds[-1 if len(kinds) == 1 else int(made.experts[number])]
        inside = self.layer(kind, made, made.layers - 1)
        ahead = kinds[-1]
        cells = [(name, inside if name == "transformer_layer" else cell) for name, cell in ahead.cells]
        return Tree(ahead.operators, cells)


@pytest.fixture(scope="module", params=["2.0", "2.1"])
def release(request: pytest.FixtureRequest) -> Iterator[Release]:
    try:
        pynative.wheel(request.param)
    except OSError as error:
        pytest.skip(str(error))
    with Models(request.param, 1) as models:
        yield Release(request.param, models)


def two_counts(text: str, version: str) -> str:
    """Check the problem that ms-tune reports for a config whose number of layers the release refuses, as two names set it."""
    source = parse_source(text, Path("config.yaml"))
    written = model_of(source, Dialect.MINDFORMERS_PYNATIVE, version).written_fields("num_layers")
    if len({field.value for field in written}) > 1:
        with pytest.raises(ConfigError, match="the same setting"):
            dynamic_plan(source, version)
        return "two numbers of layers"
    plan = dynamic_plan(source, version)
    loads = plan.failure is None or not any(problem.id == "load-rejected" for problem in plan.problems)
    assert not loads or "second-name" in {problem.id for problem in plan.problems}, text
    return "another name" if loads else "not loaded"


def compare(release: Release, config: dict[str, Any]) -> str:
    """Return how both answer; assert that they agree."""
    text, data = text_of(config), as_read(config)
    made = release.make_network(data["model"])
    if made.error is not None and made.two_counts:
        return two_counts(text, release.version)
    if made.error is not None:
        return "no network"
    kind = data["model"]["model_type"]
    network = data["model"].get("architectures", ARCHITECTURES[kind])
    if (network if isinstance(network, str) else network[0]) != ARCHITECTURES[kind]:
        plan = dynamic_plan(parse_source(text, Path("config.yaml")), release.version)
        assert plan.matches is None, text
        return "another model's network"
    if made.mtp and kind == "qwen3":
        return "unknown layers"  # that predict
    outcome = release.oracle.ask(
        data, made.layers, made.mtp, lambda number: pynative.cell_of(release.layer(kind, made, number))
    )
    plan = dynamic_plan(parse_source(text, Path("config.yaml")), release.version)
    found = None if plan.failure is None else plan.failure.exception
    assert found == outcome.exception, (outcome.exception, outcome.text, plan.failure, text)
    if plan.failure is not None:
        assert found == "regex.error" or plan.failure.text == outcome.text, (outcome.text, text)
        return found or ""
    try:
        assert_same_layers(plan, outcome, made.layers, release.version, kept=False)
    except AssertionError as error:
        raise AssertionError(text) from error
    return "plan"


def test_random_configs(release: Release) -> None:
    seen: Counter[str] = Counter()
    for number in range(CASES):
        random = Random(f"{SEED}/{number}")  # noqa: S311 - reproducible cases
        seen[compare(release, dynamic_config(random, release.version, release.patterns))] += 1
    assert seen["plan"] > CASES / 5
