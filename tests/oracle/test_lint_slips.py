"""Insert single slips into the frameworks' own configs, classified as harmful or harmless by MindFormers' own reading.

``MS_TUNE_ORACLE_SLIPS=300`` sets the number, ``MS_TUNE_ORACLE_SEED`` draws others. A slip is harmful if the start stops
only with it, or if anything except the changed place is read differently: the filled template, the model's
configuration from which the network is built, the effect on each layer. An accepted value of the changed key itself is
counted separately, because no reader can distinguish it from an intended one.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ms_tune.enums import Dialect
from ms_tune.facts.keys import tables
from tests.oracle import wheels
from tests.oracle.framework import Framework, framework_of
from tests.oracle.test_lint_fixes import linted, without

MANY = int(os.environ.get("MS_TUNE_ORACLE_SLIPS", "0"))
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "0"))
_RELEASES = ("1.6", "1.9", "2.1")
_TOLD = 0.95  # the required share of reported harmful slips
# Keys of a legacy model's configuration, which stores any value, that only prediction reads.
_OF_PREDICTION = {"top_k", "top_p", "do_sample", "max_decode_length", "max_length", "repetition_penalty"}
_LINE = re.compile(r"(?m)^([ ]*(?:- )?)([A-Za-z_]\w*): +([^\s#&*|>{\[][^#\n]*?)([ \t]*(?:#.*)?)$")

pytestmark = pytest.mark.skipif(not MANY, reason="MS_TUNE_ORACLE_SLIPS says how many slips to make")


framework = framework_of(_RELEASES, "static_child")


def configs(version: str) -> list[tuple[str, str]]:
    """Return the configs of a wheel that train a static graph."""
    texts = [(name, text) for name, text in wheels.configs(version).items() if "predict" not in name]
    return [(name, text) for name, text in texts if re.search(r"(?m)^parallel_config:", text)]


def slip(text: str, random: Random) -> tuple[str, str, str, str]:
    """Return a text with one slip: its kind, the key, its new value, and the text."""
    place = random.choice(list(_LINE.finditer(text)))
    before, key, value, after = place.groups()
    kind = random.choice(("key", "type", "list", "word", "negative"))
    old, letter = key, random.randrange(1, len(key))
    if kind == "key":
        key = key[:letter] + random.choice(("", 2 * key[letter])) + key[letter + 1 :]
    elif kind == "type":
        value = "wrong" if re.fullmatch(r"-?[\d.]+|True|False|true|false", value) else "7"
    elif kind == "list":
        value = f"[{value}]"
    elif kind == "negative" and re.fullmatch(r"\d[\d.]*", value) and float(value):
        value = f"-{value}"
    elif re.fullmatch(r"-?[\d.]+", value):
        kind, value = "list", f"[{value}]"  # a repeated digit makes another number, which may be intended
    else:
        kind, at = "word", random.randrange(len(value))
        value = value[:at] + 2 * value[at] + value[at + 1 :]
    return kind, old, key, f"{text[: place.start()]}{before}{key}: {value}{after}{text[place.end() :]}"


def harm(framework: Framework, before: dict[str, Any], text: str, names: set[str]) -> str:
    """Return the effect of a slip: ``stops``, ``lost`` (another place or the built model differs), ``taken`` as it is, or ``nothing``."""
    after = framework.ask(text)
    if after.get("error"):
        return "stops"
    dead = {one.name for one in tables(Dialect.MINDFORMERS) if one.state == "dead"}
    # Values in the model's section count if they are part of the configuration that is built.
    beside = names | dead | ({"model_config"} if before["built"] else set())
    if without(before["config"], beside) != without(after["config"], beside):
        return "lost"
    if without(before["built"], names | _OF_PREDICTION) != without(after["built"], names | _OF_PREDICTION):
        return "lost"
    if any(before.get(key) != after.get(key) for key in ("asked", "counts")):
        return "lost"
    return "nothing" if before["config"] == after["config"] and before["built"] == after["built"] else "taken"


def test_harmful_slips_are_reported(framework: Framework, capsys: pytest.CaptureFixture[str]) -> None:
    version, random = framework.version, Random(SEED)  # noqa: S311 - slips are drawn, no secrets
    sound = [(name, text, framework.ask(text)) for name, text in configs(version)]
    sound = [one for one in sound if not one[2].get("error")]
    seen: Counter[tuple[str, bool]] = Counter()
    untold = []
    for _ in range(MANY // len(_RELEASES)):
        name, text, before = random.choice(sound)
        kind, old, new, slipped = slip(text, random)
        what = harm(framework, before, slipped, {new} if kind == "key" else {old})
        found = _count_findings(slipped, version)
        reported = found is None or bool(found - (_count_findings(text, version) or Counter()))
        seen[what, reported] += 1
        if not reported and what != "nothing":
            line = next(line for line in slipped.splitlines() if line not in text.splitlines())
            untold.append(f"{what} {kind}: {Path(name).name}: {line.strip()}")
    harmful = sum(count for (what, _), count in seen.items() if what in ("stops", "lost"))
    told_of = seen["stops", True] + seen["lost", True]
    with capsys.disabled():
        print(f"\n{version}, seed {SEED}: {told_of} of {harmful} harmful ones told; {dict(seen)}")  # noqa: T201 - the figure is the point
        print("\n".join(untold))  # noqa: T201 - as above
    assert harmful
    assert told_of >= _TOLD * harmful


def _count_findings(text: str, version: str) -> Counter[tuple[str, str]] | None:
    """Count the findings of a config; None if it is refused as a whole."""
    report = linted(text, version, None)
    return None if report is None else Counter((one.id, str(one.message)) for one in report.findings)
