"""Compare ms-tune with the code of MindSpeed-LLM, MindSpeed and Megatron-LM: the layers of a program."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ms_tune.dialects.megatron.arguments import ProgramArguments, command_of
from ms_tune.dialects.megatron.read import inputs_of
from ms_tune.dialects.megatron.recompute import normalize_megatron
from ms_tune.source.shell.read import read_launches
from tests.oracle.megatron_child import world_size

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan

# Texts that depend on the Python version, or on the order of a set.
_LOOSE = ("ZeroDivisionError", "AssertionError: Invalid choices for recompute_modules")
# The schedule decides at run time which parts of layers are recomputed.
AT_RUN_TIME = ("--recompute-in-bubble", "--recompute-in-advance")


def answers(release: Path, cases: Sequence[Sequence[str]], *options: str) -> Iterator[list[str]]:
    """Return the results of a release's code for lists of arguments: a line per layer, or how it stops.

    Args:
        release: The folder with the sources.
        cases: The lists.
        options: ``cold`` imports everything again for each list; ``settings`` answers with all validated
            settings, ``config`` only if the config of the layers can be made of them as well;
            ``quick`` applies only the patches of plain arguments, without which nothing is validated.
    """
    lines = run(release, cases, *options)
    return (_lines(case, json.loads(line)) for case, line in zip(cases, lines, strict=True))


def parser_names(release: Path, case: Sequence[str]) -> frozenset[str]:
    """Return the arguments that a release's parser knows when it reads a list."""
    return frozenset(json.loads(run(release, [case], "cold", "parser")[0])["names"])


def run(release: Path, cases: Sequence[Sequence[str]], *options: str) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.oracle.megatron_child", str(release), *options]
    given = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(cases), done.stderr[-2000:]
    return lines


def _lines(case: Sequence[str], answer: dict[str, Any]) -> list[str]:
    if "stopped" in answer:
        return [_stopped(answer["exception"], answer["text"])]
    loose = bool({*AT_RUN_TIME} & {*case})
    return [
        _line(row["stage"], row["chunk"], row["kind"], row["full"], () if loose else row["operators"])
        for row in sorted(answer["layers"], key=lambda row: row["place"])
    ]


def describe_plan(case: Sequence[str], release: str) -> list[str]:
    """Return the plan of ms-tune in the form of the child's answers."""
    plan = plan_of(case, release)
    if plan.failure is not None:
        return [_stopped(plan.failure.exception, plan.failure.text)]
    loose = bool({*AT_RUN_TIME} & {*case})
    return [
        _line(
            layer.stage,
            layer.chunk,
            layer.kind.value if layer.kind else "",
            layer.recompute.value == "full",
            () if loose else sorted((*layer.select_patterns, *layer.overridden)),
        )
        for layer in plan.layers
    ]


def plan_of(case: Sequence[str], release: str) -> LayerPlan:
    """Return the plan of a program with these arguments."""
    return normalize_megatron(inputs_of(command_with(case, release)))


def command_with(case: Sequence[str], release: str) -> ProgramArguments:
    """Return a program with these arguments."""
    words = " ".join(map(shlex.quote, case))
    script = f"torchrun --nproc_per_node {world_size(case)} pretrain_gpt.py {words}\n"
    command = command_of(read_launches(Path("pretrain.sh"), script).launches[0], release)
    assert command is not None
    return command


def _line(stage: int, chunk: int, kind: str, full: bool, parts: Sequence[str]) -> str:  # noqa: FBT001 - a row
    return " ".join([f"{stage}.{chunk}", kind, *(["full"] if full else []), *parts])


def _stopped(exception: str, text: str) -> str:
    found = f"{exception}: {text}"
    return next((loose for loose in _LOOSE if found.startswith(loose)), found)
