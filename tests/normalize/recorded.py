"""Record the answers of ms-tune to drawn configs: problems, remedies, explicit lists, conversions, merged SAPP lists.

``python -m tests.normalize.recorded`` draws thousands, stores those whose answer has a rare form, and writes
``tests/data/normalize/answers.json`` (a minute); ``--again`` keeps the configs and writes today's answers (seconds).
The behaviour of layers is compared with the frameworks' own code by ``tests/oracle``, and every remedy and conversion
is validated when it is made; the record contains *which* one is proposed and the messages, so that git shows a change
case by case.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import yaml

from ms_tune.encode import as_json
from ms_tune.errors import MsTuneError
from ms_tune.job import Job
from ms_tune.report.normalize_text import plan_json
from ms_tune.source.yaml import SourceFile, parse_source
from ms_tune.text import Language, render
from tests.jobs import convert_source, explicit, merge_sapp, normalize_source
from tests.normalize.conversion_cases import random_case
from tests.oracle import lint_cases, mindspeed_cases, pynative_cases, whole_cases

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic

FILE = Path(__file__).parents[1] / "data" / "normalize" / "answers.json"
SEED = 8
DRAWN = 6000
_ALIKE = 2  # answers of one form
_DIALECTS = ("mindformers", "mindformers-pynative", "mindspeed-ms")
_STATIC = ("1.6", "1.7", "1.8", "1.9", "2.0", "2.1")
_PATTERNS = {"qwen3": ["mlp", "mlp.linear_fc1"], "deepseek_v3": ["mlp", "mlp.experts", "input_layernorm.norm"]}
Case = dict[str, Any]


class _Plain(yaml.SafeDumper):
    """A YAML writer without aliases."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def text_of(config: object) -> str:
    """Return a config as text."""
    return yaml.dump(config, Dumper=_Plain, sort_keys=False, width=10**6)


def answer(case: Case) -> Case:
    """Return the current answer of ms-tune to a case."""
    source = parse_source(case["config"], Path("config.yaml"))
    try:
        if "lists" in case:
            return _merged(case, source)
        return converted(case, describe_problems) if "target" in case else _planned(case, source)
    except MsTuneError as error:
        return refused(error)


def converted(case: Case, told_of: Callable[[Sequence[Diagnostic]], list[str]]) -> Case:
    """Return the settings of a config after conversion to another dialect."""
    source = parse_source(case["config"], Path("config.yaml"))
    found = convert_source(source, case["target"], version=case["release"])
    return {"values": dict(found.values), "problems": told_of(found.problems)}


def refused(error: MsTuneError) -> Case:
    """Return the error text of a case without an answer."""
    return {"refused": " | ".join(render(one, Language.EN) for one in (error.message, error.hint) if one)}


def _planned(case: Case, source: SourceFile) -> Case:
    plan = normalize_source(source, case["release"])
    known = as_json(plan_json(plan, plan.layers), Language.EN)
    text = json.dumps([known[key] for key in ("placement", "formative", "layers")], sort_keys=True, default=str)
    found: Case = {"problems": describe_problems(plan.problems), "layers": _short(text)}
    if plan.failure is None and case.get("explicit"):
        written = explicit(source, Job(source).dialect, case["release"])
        before = case["config"].splitlines()
        found["written"] = [line for line in written.text.splitlines() if line not in before]
    return found


def _merged(case: Case, source: SourceFile) -> Case:
    merged = merge_sapp(case["lists"], source, version=case["release"])
    before = case["config"].splitlines()
    lines = [line for line in merged.text.splitlines() if line not in before]
    return {"lines": lines, "count": merged.count, "problems": describe_problems(merged.plan.problems)}


def describe_problems(problems: Sequence[Diagnostic]) -> list[str]:
    """Return one line per problem."""
    return [
        f"{one.id}: {render(one.message, Language.EN)}" + (f" | {render(one.help, Language.EN)}" if one.help else "")
        for one in problems
    ]


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _plans(random: Random) -> Iterator[Case]:
    for number in range(DRAWN // 6):
        version = _STATIC[number % len(_STATIC)]
        yield {"config": text_of(whole_cases.static_config(random, version)), "release": version}
        config = lint_cases.random_config(random, version)
        yield {"config": text_of(config), "release": version, "explicit": True}
    for number in range(DRAWN // 6):
        version = ("2.0", "2.1")[number % 2]
        yield {"config": text_of(whole_cases.dynamic_config(random, version, _PATTERNS)), "release": version}
        config, layers, ahead = pynative_cases.random_config(random, version)
        made = {"training": {}, "model": {"num_layers": layers, "mtp_num_layers": ahead}, **config}
        yield {"config": text_of(made), "release": version, "explicit": True}
    for _ in range(DRAWN // 6):
        yield {"config": text_of(mindspeed_cases.random_config(random)), "release": None, "explicit": True}


def _conversions(random: Random) -> Iterator[Case]:
    for number in range(DRAWN // 10):
        case = random_case(random, _DIALECTS[number % 3])
        release = random.choice(("2.0", "2.1"))
        target = random.choice(
            ("mindformers@1.7", "mindformers@2.1", f"mindformers-pynative@{release}", "mindspeed-ms")
        )
        yield {"config": case.source.text, "release": case.release, "target": target}


def _sapp(random: Random) -> Iterator[Case]:
    for number in range(DRAWN // 20):
        case = random_case(random, _DIALECTS[number % 3])
        plan = normalize_source(case.source, case.release)
        counts = [list(row) for row in plan.placement or ()]
        full = [[random.randrange(count + 1) for count in row] for row in counts]
        full = [[0] * len(row) for row in full] if random.random() < 0.2 else full
        more = [
            [random.randrange(low, count + 1) for low, count in zip(*pair, strict=True)]
            for pair in zip(full, counts, strict=True)
        ]
        layers, cells = sum(map(sum, counts)), sum(map(len, counts))
        offset = [[count - layers // cells for count in row] for row in counts]
        lists = {
            "offset": offset,
            "recompute": full,
            "select_recompute": more,
            "select_comm_recompute": random.choice((full, more)),
        }
        kept = {key: value for key, value in lists.items() if random.random() < 0.8} or lists
        text = "".join(f"{key}: {value}\n" for key, value in kept.items())
        yield {"config": case.source.text, "release": case.release, "lists": text}


def _forms(case: Case, found: Case) -> set[str]:
    """Yield the parts of an answer without numbers and names: each problem with the keys that its remedy changes."""
    kind = next((key for key in ("lists", "target", "explicit") if key in case), "plan")
    dialect = next((name for name in ("parallelism", "training_config") if f"{name}:" in case["config"]), "static")
    forms = {
        f"{line.split(':')[0]} {re.findall(r'[a-z_]+(?=[.:[])', line.rpartition(' | ')[2])}"
        for line in found.get("problems", ())
    }
    forms |= {re.sub(r"[\d'\"]+", "", found.get("refused", ""))[:80]}
    forms |= {
        " ".join(re.findall(r"[a-z_]+(?=:)", line)) for key in ("written", "lines") for line in found.get(key, ())
    }
    forms |= {f"{key} {type(value).__name__} {bool(value)}" for key, value in found.get("values", {}).items()}
    return {f"{kind} {dialect} {case['release'] if kind == 'plan' else ''} {form}" for form in forms}


def choose_cases(
    cases: Iterable[Case], answered: Callable[[Case], Case], forms_of: Callable[[Case, Case], set[str]]
) -> Iterator[Case]:
    """Yield the cases whose answers contain a part that few cases before had."""
    seen: Counter[str] = Counter()
    for case in cases:
        forms = forms_of(case, answered(case))
        if any(seen[form] < _ALIKE for form in forms):
            seen.update(forms)
            yield case


def recorded(file: Path = FILE) -> list[Case]:
    """Return the cases of a file, each with its ``answer``."""
    cases: list[Case] = json.loads(file.read_text("utf-8"))
    return cases


def write(file: Path, drawn: Iterable[Case], answered: Callable[[Case], Case]) -> int:
    """Write cases with today's answers; with ``--again`` those of the file in place of what was drawn. Gives their number."""
    if "--again" in sys.argv:
        drawn = [{key: value for key, value in case.items() if key != "answer"} for case in recorded(file)]
    lines = [
        json.dumps({**case, "answer": json.loads(json.dumps(answered(case)))}, ensure_ascii=False) for case in drawn
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")
    return len(lines)


def main() -> None:
    """Write the file."""
    random = Random(SEED)  # noqa: S311 - the same cases every time
    count = write(
        FILE, choose_cases(chain(_plans(random), _conversions(random), _sapp(random)), answer, _forms), answer
    )
    counts = Counter(line.split(":")[0] for case in recorded() for line in case["answer"].get("problems", ["refused"]))
    print(f"{count} cases, {FILE.stat().st_size // 1024} KiB: {dict(counts.most_common())}")  # noqa: T201


if __name__ == "__main__":
    main()
