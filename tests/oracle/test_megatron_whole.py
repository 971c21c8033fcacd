"""Check that the frameworks' own code stops over the arguments that checks report as missing in a training script."""

from __future__ import annotations

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest

from ms_tune.dialects.megatron.read import SERVED
from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from tests.jobs import commands_in
from tests.oracle.make_megatron import SOURCES
from tests.oracle.megatron_layers import answers

pytestmark = [
    pytest.mark.skipif(SOURCES not in os.environ, reason=f"{SOURCES} names no sources of MindSpeed-LLM"),
    pytest.mark.slow,
]
# A whole script: each of these may be missed.
WHOLE = (
    *("--num-layers 4", "--hidden-size 64", "--num-attention-heads 4", "--micro-batch-size 1", "--seq-length 64"),
    *("--max-position-embeddings 64", "--train-iters 2000", "--position-embedding-type rope", "--bf16"),
    *("--transformer-impl local", "--lr 1e-5", "--min-lr 1e-6", "--clip-grad 1.0", "--seed 1", "--log-interval 1"),
    *("--weight-decay 0.1", "--adam-beta1 0.9", "--adam-beta2 0.95", "--init-method-std 0.01", "--eval-iters 0"),
    *("--no-load-optim", "--no-load-rng", "--tokenizer-type NullTokenizer", "--vocab-size 100", "--eval-interval 10"),
)
GONE = ("--batch-size 1", "--warmup 1", "--model-parallel-size 1", "--checkpoint-activations")
SPLITS = ("0", "1", "949", "50", "0.5", ".5", "1.2.3", "a", "-1", "1e2", "")


def lint_ids(words: list[str], release: str) -> set[str]:
    """Return the checks that find something in a script with these arguments."""
    text = f"torchrun --nproc_per_node 1 pretrain_gpt.py {' '.join(words)}\n"
    commands = commands_in(Path("pretrain.sh"), text, release)
    checks = built_in(Dialect.MEGATRON)
    return {one.id for command in commands for one in lint(command, Dialect.MEGATRON, checks, release)}


@pytest.mark.parametrize("release", SERVED)
def test_what_is_missing_or_gone_stops_the_program(release: str) -> None:
    cases = [list(WHOLE), *([one for one in WHOLE if one is not left_out] for left_out in WHOLE)]
    cases += [[*WHOLE, gone] for gone in GONE]
    stopped = [
        any(line.split(":")[0].endswith(("Error", "Exit")) for line in found)
        for found in answers(Path(os.environ[SOURCES], release), [" ".join(case).split() for case in cases])
    ]
    assert not stopped[0]
    assert [bool(lint_ids(case, release) & {"MST140", "MST141"}) for case in cases] == stopped


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a framework's module is of no type here
    """Import modules of Megatron-LM's core by name, each alone, with a stand-in for torch."""
    folder = Path(os.environ[SOURCES], "2.3", "Megatron-LM", "megatron", "core")

    def module(name: str) -> Any:  # noqa: ANN401 - as above
        others = (
            "megatron.core.optimizer",
            "megatron.core.utils",
            "megatron.core.datasets.megatron_tokenizer",
            "torch",
        )
        for other in ("megatron", "megatron.core", "megatron.core.datasets", *others):
            stand_in: Any = sys.modules.get(other) or ModuleType(other)
            for needed in ("MegatronOptimizer", "log_single_rank", "MegatronTokenizer", "Tensor", "distributed"):
                setattr(stand_in, needed, MagicMock)
            monkeypatch.setitem(sys.modules, other, stand_in)
        spec = spec_from_file_location(f"megatron.core.{name.replace('/', '.')}", folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        made = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, made)
        spec.loader.exec_module(made)
        return made

    return module


@pytest.mark.filterwarnings("ignore")
def test_the_split_of_the_data(core: Any) -> None:  # noqa: ANN401 - as above
    core("datasets/utils")
    config = core("datasets/blended_megatron_dataset_config")
    random = Random(4)  # noqa: S311 - no secret
    outcomes = set()
    for _ in range(300):
        text = ",".join(random.choice(SPLITS) for _ in range(random.randint(1, 4)))
        if text.startswith("-"):
            continue  # no value for the parser
        try:
            matrix = config.convert_split_vector_to_split_matrix(config.parse_and_normalize_split(text))
            stops = any(part is not None and part[0] != part[0] for part in matrix)
        except (AssertionError, ValueError, ZeroDivisionError):
            stops = True
        outcomes.add(stops)
        assert ("MST144" in lint_ids([*WHOLE, f"--split '{text}'"], "2.3")) == stops, text
    assert outcomes == {True, False}


@pytest.mark.filterwarnings("ignore")
def test_the_course_of_the_learning_rate(core: Any) -> None:  # noqa: ANN401 - as above
    scheduler = core("optimizer_param_scheduler").OptimizerParamScheduler
    random = Random(5)  # noqa: S311 - no secret
    outcomes = set()
    for _ in range(200):
        warm, decay, iters, batch = (random.choice((0, 1, 9, 10, 11, 50)) for _ in range(4))
        iters, batch = iters or 5, batch or 1
        every = decay if random.random() < 0.5 else None
        words = [f"--lr-warmup-iters {warm}", f"--train-iters {iters}", f"--global-batch-size {batch}"]
        words += [] if every is None else [f"--lr-decay-iters {every}"]
        if every == 0:
            continue  # another assertion's
        steps = {
            "lr_warmup_steps": warm * batch,
            "lr_decay_steps": (every or iters) * batch,
            "wd_incr_steps": iters * batch,
        }
        try:
            scheduler(
                MagicMock(param_groups=[]),
                0.0,
                1e-5,
                0.0,
                lr_decay_style="cosine",
                start_wd=0.1,
                end_wd=0.1,
                wd_incr_style="constant",
                **steps,
            )
            stops = False
        except AssertionError:
            stops = True
        outcomes.add(stops)
        assert (
            "MST142" in lint_ids([*(one for one in WHOLE if "--train-iters" not in one), *words], "2.3")
        ) == stops, words
    assert outcomes == {True, False}
