"""Compare lint's findings in the examples of the dynamic graph with the behaviour of MindFormers 2.0 and 2.1.

As in :mod:`tests.oracle.test_lint_examples` for the static graph: where a release accepts the good example, it refuses
the bad one if lint reports that the run stops, at the step that lint names; and lint reports everything that it
refuses, by some check. ``MS_TUNE_TEST_MORE=1`` runs both releases, otherwise the newer only.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import Check, built_in
from ms_tune.lint.engine import lint, matches
from ms_tune.source.yaml import parse_source
from tests.lint.few import profile_for
from tests.oracle import pynative
from tests.oracle.cases import as_read
from tests.oracle.models import Models
from tests.oracle.test_lint_dynamic import _SOUND, start
from tests.oracle.test_lint_examples import filled

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic

CHECKS = built_in(Dialect.MINDFORMERS_PYNATIVE)
# Steps that show a consequence; interactions of several cards and a first step do not run here.
STEPS = {
    "stops-reading": {"load"},
    "stops-starting": {"load", "start", "layers"},
    "stops-building": {"layers", "model"},
    "stops-before-step": {"start", "model"},
}
NOT_RUN = {
    "MST707": "what is missing is filled in here",
    "MST744": "what is missing is filled in here",
    "MST585": "the classes of a section are built in a run; test_parts asks them",
    "MST588": "the trainer, the data pipeline and the optimizer; see test_planted_mindformers",
    "MST101": "YAML keeps one of the two",
    **dict.fromkeys(("MST787", "MST790"), "the cells of a layer"),
    **dict.fromkeys(("MST700", "MST789", "MST791", "MST792", "MST793"), "a first step"),
    **dict.fromkeys(("MST795", "MST797", "MST798", "MST799"), "the optimizer"),
    **dict.fromkeys(("MST739", "MST740", "MST761", "MST772"), "the command, which chooses a mode"),
    **dict.fromkeys(("MST765", "MST777"), "the register, to which code of one's own may add"),
    **dict.fromkeys(("MST725", "MST726", "MST727", "MST728", "MST759", "MST767"), "what several cards do"),
    **dict.fromkeys(("MST718", "MST748", "MST778", "MST783"), "the layers of several cards"),
}
_WITH_EXPERTS = ("deepseek_v3", "qwen3_moe")


oracle = pynative.oracle_of(*(["2.0.0"] if "MS_TUNE_TEST_MORE" in os.environ else []), "2.1.0")


@pytest.fixture(scope="module")
def models(oracle: pynative.Oracle) -> Iterator[Models]:
    with Models(oracle._version[:3], 1) as started:
        yield started


def whole(example: str) -> dict[str, Any]:
    """Return an example with the settings that every config needs."""
    values = filled(yaml.safe_load(example), _SOUND)
    if str(values["model"].get("model_type")) in _WITH_EXPERTS:
        values["model"].setdefault("moe_grouped_gemm", True)  # all that the dynamic graph has
    return values  # type: ignore[no-any-return]


def refusal(oracle: pynative.Oracle, models: Models, config: dict[str, Any]) -> tuple[str, str] | None:
    """Return the step at which a config is refused, and the exception; None if it is accepted."""
    step, cards = "load", 1
    for way in ("tensor", "pipeline", "context"):
        ways = config.get("parallelism", {}).get(f"{way}_parallel", 1)
        cards *= ways if isinstance(ways, int) else 1
    model = config["model"]
    try:
        read = oracle._config["TrainConfig"].from_dict(as_read(config))
        step = "start"
        if cards == 1:
            start(oracle._version[:3]).go(read)
        step = "layers"
        layers = model.get("num_hidden_layers", model.get("num_layers", 4))
        plan = {key: value for key, value in config.items() if key != "model"}
        raised = oracle.ask(as_read(plan), layers, model.get("num_nextn_predict_layers", 0)).exception
    except Exception as error:  # noqa: BLE001 - whatever it is
        return step, f"{type(error).__name__}: {error}"
    if raised:
        return step, raised
    made = models.make(model)
    return ("model", f"{made.error}: {made.text}") if made.error else None


def findings(text: str, version: str, check: Check, checks: tuple[Check, ...]) -> tuple[Diagnostic, ...]:
    return lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS_PYNATIVE, checks, version, profile_for(check))


def compare(oracle: pynative.Oracle, models: Models, check: Check) -> str:
    """Return how the release and the check agree; assert that they do."""
    version = oracle._version[:3]
    if refusal(oracle, models, whole(check.good)) is not None:
        return "not comparable"
    found = refusal(oracle, models, whole(check.bad))
    text = yaml.safe_dump(whole(check.bad), sort_keys=False)
    said = [one.consequence for one in findings(text, version, check, (check,)) if one.consequence in STEPS]
    where = f"{check.id} {check.name}, {version}"
    if found is None:
        assert not said, f"{where}: taken, and lint says {said}\n{text}"
        return "taken"
    if said:
        assert found[0] in STEPS[said[0]], f"{where}: refused at {found}, and lint says {said}"
        return "refused"
    others = {one.consequence for one in findings(text, version, check, CHECKS)}
    assert others & STEPS.keys(), f"{where}: refused at {found}, and lint says {others}\n{text}"
    return "refused, told by another check"


@pytest.mark.slow
def test_examples(oracle: pynative.Oracle, models: Models) -> None:
    seen: dict[str, list[str]] = {}
    wrong = []
    for check in CHECKS:
        if check.id in NOT_RUN or not matches(oracle._version, check.versions):
            continue
        try:
            seen.setdefault(compare(oracle, models, check), []).append(check.id)
        except AssertionError as error:
            wrong.append(str(error).partition("\nassert")[0])
    counts = Counter({how: len(ids) for how, ids in seen.items()})
    assert not wrong, "\n\n".join(wrong)
    assert counts["refused"] > 15
    assert "not comparable" not in seen
