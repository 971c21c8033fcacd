"""Record the answers of ms-tune to drawn launch scripts and conversions to their arguments, like :mod:`tests.normalize.recorded`.

``python -m tests.normalize.recorded_scripts`` draws, stores the cases whose answer has a rare form, and writes
``tests/data/normalize/scripts.json``; ``--again`` keeps the cases and writes today's answers. The behaviour of layers
is compared with the frameworks' own code by ``tests/dialects/test_megatron.py``; the record contains messages,
remedies and conversions.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from ms_tune.enums import Dialect
from ms_tune.errors import MsTuneError
from ms_tune.job.script import ScriptJob
from ms_tune.normalize.convert import convert_script, target_of
from ms_tune.normalize.script import normalize_script
from tests.normalize.conversion_cases import random_case
from tests.normalize.recorded import Case, choose_cases, converted, describe_problems, refused, write
from tests.oracle.megatron_cases import ALWAYS, random_arguments

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic

FILE = Path(__file__).parents[1] / "data" / "normalize" / "scripts.json"
SEED, DRAWN = 13, 1500
_RELEASES = ("2.2", "2.3", "26.0", "26.1")
_TARGETS = ("mindformers@1.9", "mindformers@2.1", "mindformers-pynative@2.1", "mindspeed-ms", "megatron@2.3")
_RUN = "torchrun --nproc_per_node 8 pretrain_gpt.py"
_PATH = Path("pretrain.sh")


def answer(case: Case) -> Case:
    """Return the current answer of ms-tune to a case."""
    try:
        return converted(case, _describe_problems) if "config" in case else _scripted(case)
    except MsTuneError as error:
        return refused(error)


def _scripted(case: Case) -> Case:
    text = f"{_RUN} {' '.join(map(shlex.quote, ALWAYS))} {case['arguments']}\n"
    (one,) = normalize_script(ScriptJob(_PATH, text, version=case["release"]))
    assert one.plan is not None
    found: Case = {"problems": _describe_problems(one.plan.problems)}
    if one.plan.failure is not None:
        return found
    (other,) = convert_script(ScriptJob(_PATH, text, version=case["release"]), target_of(case["target"]))
    assert other.settings is not None
    return found | {"values": dict(other.settings.values), "converted": _describe_problems(other.settings.problems)}


def _describe_problems(problems: Sequence[Diagnostic]) -> list[str]:
    return [
        line.replace(one.id, f"{one.id} ({one.severity.value})", 1)
        for one, line in zip(problems, describe_problems(problems), strict=True)
    ]


def _cases(random: Random) -> Iterator[Case]:
    for number in range(DRAWN):
        arguments = " ".join(map(shlex.quote, random_arguments(random)[len(ALWAYS) :]))
        target = random.choice(_TARGETS)
        yield {"arguments": arguments, "release": _RELEASES[number % len(_RELEASES)], "target": target}
    dialects = [one.value for one in (Dialect.MINDFORMERS, Dialect.MINDFORMERS_PYNATIVE, Dialect.MINDSPEED_MS)]
    for number in range(DRAWN // 3):
        case = random_case(random, dialects[number % len(dialects)])
        target = f"megatron@{random.choice(_RELEASES)}"
        yield {"config": case.source.text, "release": case.release, "target": target}


def _forms(case: Case, found: Case) -> Iterator[str]:
    """Yield the parts of an answer without numbers."""
    kind = "config" if "config" in case else case["release"]
    to = case["target"].partition("@")[0]
    yield from (f"{kind} {_worded(line)[:120]} {' | ' in line}" for line in found.get("problems", ()))
    yield from (f"{to} {_worded(line)[:60]}" for line in found.get("converted", ()))
    yield from (f"{to} {key}" for key in found.get("values", ()))
    yield f"{kind} {_worded(found.get('refused', ''))[:80]}"


def _worded(text: str) -> str:
    return "".join(one for one in text if not one.isdigit())


def main() -> None:
    """Write the file."""
    random = Random(SEED)  # noqa: S311 - the same cases every time
    count = write(FILE, choose_cases(_cases(random), answer, lambda case, found: set(_forms(case, found))), answer)
    print(f"{count} cases, {FILE.stat().st_size // 1024} KiB")  # noqa: T201


if __name__ == "__main__":
    main()
