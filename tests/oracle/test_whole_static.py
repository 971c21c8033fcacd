"""Compare ms-tune's result for complete static-graph configs with missing keys with the real classes and functions.

Both sides get the text of a config: ms-tune unchanged, and a process (:mod:`tests.oracle.static_child`) in which the
code inside the wheel reads it, builds the model's config and sets the layers, which are made from ms-tune's trees.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.errors import ConfigError
from ms_tune.facts.models import is_legacy
from ms_tune.facts.query import VERSIONS
from ms_tune.job.includes import with_model_folder
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from tests.jobs import remedy_of, static_plan
from tests.oracle.amount import cases
from tests.oracle.cases import text_of
from tests.oracle.framework import Framework, framework_of
from tests.oracle.models import names_two_counts
from tests.oracle.whole_cases import SEED, in_model_folder, static_config

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan, LayerSpec

CASES = cases(20, 40)  # of each release
SECTIONS = ("model", "parallel", "parallel_config", "moe_config", "runner_config", "context")
# Calls on a layer (False) or on a part of it (True).
_ASKED = {
    ("recompute", False): "full",
    ("recompute", True): "select",
    ("recompute_comm_op=True", True): "comm",
    ("exclude", True): "exclude",
    ("recompute_comm_op=False", True): "comm exclude",
    ("swap", False): "swap",
    ("swap", True): "op swap",
}


framework = framework_of(VERSIONS, "static_child")


def plan_of(text: str, version: str) -> LayerPlan | ConfigError:
    try:
        return static_plan(with_model_folder(parse_source(text, Path("a.yaml"))), version)
    except ConfigError as error:
        return error


def did(layer: LayerSpec) -> dict[str, bool]:
    """Describe the behaviour of a layer by ms-tune."""
    full = layer.recompute is RecomputeMode.FULL
    return {
        "full": full,
        "select": bool(layer.select_patterns) and not full,
        "comm": bool(layer.comm_patterns) and not full,
        "exclude": bool(layer.select_excludes),
        "comm exclude": bool(layer.comm_excludes),
        "swap": any(not swap.target for swap in layer.swap),
        "op swap": any(swap.target for swap in layer.swap),
    }


def compare(framework: Framework, text: str) -> str:
    """Return how both answer; assert that they agree."""
    answer, plan = framework.ask(text), plan_of(text, framework.version)
    step = str(answer.get("step", "fine"))
    if isinstance(plan, ConfigError):
        meant = "not 0" in str(plan)  # of layers; MindFormers accepts it, and it is never intended
        assert meant or "error" in answer, f"ms-tune: {plan}\n{text}"
        return "refused while it is read"
    problem_ids = {problem.id for problem in plan.problems}
    assert "second-name" in problem_ids or not names_two_counts(str(answer.get("text"))), (
        f"MindFormers: {answer['text']}\n{text}"
    )
    failure = None if plan.failure is None else (plan.failure.exception, plan.failure.text)
    if "error" in answer:
        raised = (answer["error"], answer["text"])
        stops = any(problem.id == "pattern-any" for problem in plan.problems)  # whose layers are shown all the same
        if step == "layers" and not (stops and failure is None):
            assert failure is not None, f"MindFormers: {raised}\n{text}"
            if raised[1] == "invalid __array_struct__":
                return f"refused: {step}"  # NumPy's words for a mapping of MindFormers' own class
            assert failure[0] == raised[0], f"MindFormers: {raised}, ms-tune: {failure}\n{text}"
            assert failure[1] in (raised[1], ""), f"MindFormers: {raised}, ms-tune: {failure}\n{text}"
        return f"refused: {step}"
    assert failure is None, f"ms-tune: {failure}\n{text}"
    assert plan.placement is not None
    counts = [list(row) for row in plan.placement]
    assert counts == answer["counts"], f"counts: {answer['counts']}, ms-tune: {counts}\n{text}"
    layers = [{what for what, done in did(layer).items() if done} for layer in plan.layers]
    assert not (answer["other"] and plan.matches), f"the network is another model's\n{text}"
    if not answer["known"]:
        full = ["full" in one for one in layers]
        assert full == ["recompute" in one.get("", ()) for one in answer["asked"]], f"full: {full}\n{text}"
        return "fine, of unknown layers"
    asked = [{_ASKED[what, bool(path)] for path, calls in one.items() for what in calls} for one in answer["asked"]]
    assert layers == asked, f"layers: {asked}, ms-tune: {layers}\n{text}"
    log, reported = "\n".join(answer["log"]), "\n".join(plan.log)
    assert reported == log, f"log:\n{log}\nms-tune:\n{reported}\n{text}"
    return "fine"


def remedied(framework: Framework, text: str) -> str:
    """Check that MindFormers accepts the proposed values where it stops at the layers."""
    source = parse_source(text, Path("a.yaml"))
    plan = plan_of(text, framework.version)
    if isinstance(plan, ConfigError) or plan.failure is None or framework.ask(text).get("step") != "layers":
        return "other"
    changes = remedy_of(source, plan.framework_version)
    if not changes:
        return "no remedy"
    data: Any = source.data
    for change in changes:
        data = change.applied(data)
    new = text_of(data)
    answer, again = framework.ask(new), plan_of(new, framework.version)
    assert not isinstance(again, ConfigError)
    stops = any(problem.id == "pattern-any" for problem in again.problems)  # without a possible remedy
    passed = answer.get("step", "wrap") in {"network", "wrap"}  # later steps than the layers may still refuse it
    assert stops or passed, f"MindFormers: {answer['text']}, remedy: {changes}\n{text}"
    return "remedied"


def test_remedies_pass(framework: Framework) -> None:
    seen: Counter[str] = Counter()
    for number in range(CASES):
        random = Random(f"remedies/{SEED}/{number}")  # noqa: S311 - reproducible cases
        seen[remedied(framework, text_of(static_config(random, framework.version)))] += 1
    assert seen["remedied"] > 4 * seen["no remedy"]


def test_random_configs(framework: Framework) -> None:
    seen: Counter[str] = Counter()
    for number in range(CASES):
        random = Random(f"{SEED}/{number}")  # noqa: S311 - reproducible cases
        seen[compare(framework, text_of(static_config(random, framework.version)))] += 1
    # For models other than legacy ones 1.6 needs no operators: their layers count as unknown.
    assert seen["fine"] + seen["fine, of unknown layers"] > CASES / 20


def test_sections_that_are_nothing(framework: Framework) -> None:
    """Whether ``[]``, ``0`` or ``''`` counts as a section depends on the section and on the mode, if any is written."""
    seen: Counter[str] = Counter()
    for number in range(CASES):
        random = Random(f"nothing/{SEED}/{number}")  # noqa: S311 - reproducible cases
        config: dict[str, Any] = static_config(random, framework.version)
        mode = random.choice((None, None, None, "train", "finetune", "eval", "predict", "predict_with_train_model"))
        config = {key: value for key, value in config.items() if key != "run_mode"}
        config |= {} if mode is None else {"run_mode": mode}
        for section in random.choice((("recompute_config",), ("swap_config",), ("recompute_config", "swap_config"))):
            config[section] = random.choice(([], "", 0, False, 0.0, None, {}))
        if random.random() < 0.3:
            config[random.choice(SECTIONS)] = random.choice(([], "", 0, False, 0.0, None, {}, [1]))
        seen[compare(framework, text_of(config))] += 1
    assert seen["fine"] + seen["fine, of unknown layers"] > CASES / 20


def test_what_a_models_folder_says_is_after_the_config(framework: Framework, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for number in range(CASES):
        random = Random(f"folder/{SEED}/{number}")  # noqa: S311 - reproducible cases
        config = static_config(random, framework.version)
        while is_legacy(config):
            config = static_config(random, framework.version)
        config = in_model_folder(random, config, framework.version, tmp_path)
        seen[compare(framework, text_of(config))] += 1
    assert seen["fine"] + seen["fine, of unknown layers"] > CASES / 20


def test_a_model_that_does_not_say_use_legacy_is_looked_up_as_a_legacy_one(framework: Framework) -> None:
    check = next(one for one in built_in(Dialect.MINDFORMERS) if one.id == "MST554")
    around = "runner_wrapper: {type: MFTrainOneStepCell}\n"
    answer = framework.ask(around + check.bad)
    assert (answer["step"], answer["error"]) == ("network", "KeyError")
    assert 'must contain the key "type"' in answer["text"]
    assert framework.ask(around + check.good).get("error") != "KeyError"
    for text, expected in ((check.bad, ["MST554"]), (check.good, [])):
        found = lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS, (check,), framework.version)
        assert [one.id for one in found] == expected
