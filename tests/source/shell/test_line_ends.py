"""Test scripts with Windows line ends: read like Unix ones, written with their own ends."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ms_tune.enums import Dialect
from ms_tune.job.script import ScriptJob
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.normalize.script import normalize_script
from ms_tune.source.shell.read import read_launches, restore_line_ends, to_unix_lines
from tests.jobs import commands_in

SCRIPT = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPT_ARGS="
    --num-layers 8 --hidden-size 64 --num-attention-heads 8 \\
    --seq-length 4096 --max-position-embeddings 4096\\
    --recompute-norm-num-layers 2 \\
    --recompute-granularity full --recompute-method block \\
    --recompute-num-layers 12 \\
    --bf16
"
for NODE in one; do
  msrun --worker_num 8 pretrain_gpt.py \\
    $GPT_ARGS \\
    --micro-batch-size 1 \\
    --micro-batch-size 2
done
"""
WINDOWS = SCRIPT.replace("\n", "\r\n")
PATH = Path("pretrain.sh")


def words(text: str) -> list[str | None]:
    (launch,) = read_launches(PATH, text).launches
    return [word.text for word in launch.arguments]


def test_it_is_read_as_it_is_meant() -> None:
    assert words(WINDOWS) == words(SCRIPT)
    (reported,), (meant,) = normalize_script(ScriptJob(PATH, WINDOWS)), normalize_script(ScriptJob(PATH, SCRIPT))
    assert reported.plan is not None
    assert meant.plan is not None
    assert reported.plan.layers == meant.plan.layers
    assert [one.id for one in reported.plan.problems] == [*(one.id for one in meant.plan.problems), "carriage-returns"]


def test_it_keeps_them_when_it_is_mended() -> None:
    changed = []
    for text in (SCRIPT, WINDOWS):
        (source,) = commands_in(PATH, text, "2.3")
        for finding in lint(source, Dialect.MEGATRON, built_in(Dialect.MEGATRON), "2.3"):
            edits = finding.fix.edits if finding.fix else ()
            changed += [text[: edit.start] + edit.text + text[edit.end :] for edit in edits]
    half = len(changed) // 2
    assert half == 3
    assert [one.replace("\n", "\r\n") for one in changed[:half]] == changed[half:]


@pytest.mark.parametrize("seed", range(40))
def test_lines_that_nobody_touched_stay_as_they_were(seed: int) -> None:
    """For any mixture of line ends."""
    random = Random(seed)  # noqa: S311 - cases, no secrets
    ends = [random.choice(("\n", "\r\n", " \\\n", "\\\r\n", "  \r\n", "\u2028\r\n")) for _ in range(12)]
    lines = [f"echo {number}{end}" for number, end in enumerate(ends)] + ["exit"]
    written = "".join(lines)
    meant = to_unix_lines(written)
    assert len(meant) == len(written)
    assert restore_line_ends(written, meant) == written
    gone, new = random.randrange(12), random.randrange(12)
    kept = meant.split("\n")
    del kept[gone]
    kept[new] = kept[new].replace("echo", "printf")
    expected = [line for at, line in enumerate(lines) if at != gone]
    made = restore_line_ends(written, "\n".join(kept))
    assert made.replace("printf", "echo").replace(" \\", "\\").replace("\r", "").replace(" \n", "\n") == "".join(
        expected
    ).replace(" \\", "\\").replace("\r", "").replace(" \n", "\n")
    untouched = [line for at, line in enumerate(expected) if at != new]
    assert all(line in made for line in untouched)
