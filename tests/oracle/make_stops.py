"""Write ``megatron_stops.json``: where MindSpeed-LLM, MindSpeed and Megatron-LM stop over arguments, as harvested and as run.

:mod:`tests.oracle.stops` reads conditions from the sources. For each, programs are made that meet it, alone and beside
other options, and the frameworks' own code runs with them (:mod:`tests.oracle.megatron_layers`). A condition is served
for a release if the code stops there with the very text at least once, and stops in all of them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, islice, product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

from ms_tune.diagnostics import Severity
from ms_tune.enums import Dialect
from ms_tune.facts.megatron import definitions, names_by_dest, unregistered
from ms_tune.facts.query import data_folder
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.lint.expressions import Scope, evaluate, is_true
from ms_tune.lint.rows import parse_expression
from tests.jobs import commands_in
from tests.oracle.make_megatron import SOURCES
from tests.oracle.megatron_child import world_size
from tests.oracle.megatron_layers import command_with, run
from tests.oracle.stops import Key, Stop, changed_before, stops_of

ID = "MST175"
FIGURES = Path(__file__).parents[1] / "data" / "megatron_stops.json"
SERVED = ("2.2", "2.3", "26.0", "26.1")  # releases whose code the oracle runs
AS_BEFORE = ("2.0", "2.1")  # older ones: served where their sources have the very condition that stops 2.2
PLACES = {
    "Megatron-LM": (
        "megatron/training/arguments.py",
        "megatron/core/model_parallel_config.py",
        "megatron/core/transformer/transformer_config.py",
    ),
    "MindSpeed": ("mindspeed/features_manager",),
    "MindSpeed-LLM": ("mindspeed_llm/features_manager",),
}
_OLD_PLACES = {
    "MindSpeed-LLM": ("mindspeed_llm/training/arguments.py",),
    "MindSpeed": (),
}  # its own wrapper is not used
_NUMBERS = (2, 1, 4, 3, 0, -1)
# Around a condition: a plain program, and the settings that many conditions require to be reached at all.
_PLAIN = {
    "num_layers": 8,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "micro_batch_size": 1,
    "seq_length": 64,
    "max_position_embeddings": 64,
    "train_iters": 2000,
    "position_embedding_type": "rope",
    "bf16": True,
    "transformer_impl": "local",
    "lr": 1e-4,
}
_EXPERTS = {
    "num_experts": 8,
    "moe_grouped_gemm": True,
    "expert_model_parallel_size": 2,
    "moe_permutation_async_comm": True,
}
BESIDE: tuple[dict[str, object], ...] = (
    {},
    {**_EXPERTS, "moe_token_dispatcher_type": "alltoall"},
    {**_EXPERTS, "moe_token_dispatcher_type": "alltoall_seq"},
    {
        **_EXPERTS,
        "moe_token_dispatcher_type": "alltoall_seq",
        "tensor_model_parallel_size": 2,
        "sequence_parallel": True,
    },
    {"pipeline_model_parallel_size": 4, "num_layers_per_virtual_pipeline_stage": 1},
    {"tensor_model_parallel_size": 2, "sequence_parallel": True, "use_flash_attn": True},
    {"context_parallel_size": 2, "context_parallel_algo": "ulysses_cp_algo", "use_flash_attn": True},
    {"context_parallel_size": 4, "context_parallel_algo": "megatron_cp_algo", "use_flash_attn": True},
    {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "save": "out", "save_interval": 10, "load": "in"},
    {"multi_latent_attention": True, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16},
    {
        "stage": "sft",
        "is_instruction_dataset": True,
        "lora_target_modules": ["linear_qkv"],
        "tokenizer_type": "NullTokenizer",
    },
)
_MOST_TRIED = 6_000
_ROUNDS = 3


class Program(NamedTuple):
    """Settings that meet a condition, as words."""

    row: int
    words: list[str]
    beside: list[str]  # the same without the settings for the condition


def harvest(sources: Path, release: str) -> list[Stop]:
    """Return all places of a release that stop over arguments; files are named with their repository.

    Features change some arguments before Megatron-LM's own validation, and restore them after it.
    """
    missing = unregistered(release)
    options = frozenset(dest for dest, names in names_by_dest(release).items() if not missing.keys() >= {*names})
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their backslashes
        features = ((part, PLACES[part]) for part in ("MindSpeed", "MindSpeed-LLM"))
        changed = {name for part, places in features for name in changed_before(sources / release / part, places)}
        for part, places in PLACES.items():
            read = _OLD_PLACES.get(part, places) if release in AS_BEFORE else places
            for one in stops_of(sources / release / part, read, options):
                stop = one._replace(file=f"{part}/{one.file}")
                if part == "Megatron-LM" and stop.condition and changed & {*dests_in(parse_expression(stop.condition))}:
                    stop = stop._replace(condition="", reason="a value that a feature changes before")
                found.append(stop)
    return found


def dests_in(tree: Sequence[Any]) -> Iterator[str]:
    return (name.partition(".")[2] for name in names_in(tree))


def default_of(dest: str, release: str) -> object:
    return command_with([], release).value(dest)


def names_in(tree: Sequence[Any]) -> Iterator[str]:
    if tree[0] == "name":
        yield tree[1]
    for part in tree[1:]:
        if isinstance(part, list) and tree[0] != "value":
            yield from names_in(part)


def values_in(tree: Sequence[Any]) -> Iterator[object]:
    if tree[0] == "value":
        yield from tree[1] if isinstance(tree[1], list) else [tree[1]]
    for part in tree[1:]:
        if isinstance(part, list) and tree[0] != "value":
            yield from values_in(part)


def spell(dest: str, value: object, release: str) -> list[str] | None:
    """Return the words that set a destination to a value; None if no option does."""
    names = sorted(names_by_dest(release).get(dest, ()), key=lambda one: one.startswith("--no-"))
    for name in names:
        action = definitions(name, release)[-1].action
        if action and isinstance(value, bool) and value is (action == "store_true"):
            return [name]
        if not action and not isinstance(value, bool) and value is not None:
            return [name, *(map(str, value) if isinstance(value, list) else [str(value)])]
    return None


def candidates(dest: str, tree: Sequence[Any], release: str, default: object) -> list[str]:
    """Return values that may decide a condition, other than the default, as JSON."""
    rows = [one for name in names_by_dest(release)[dest] for one in definitions(name, release) if one.dest == dest]
    if any(one.action for one in rows):
        found: list[object] = [True, False]
    elif any(one.choices for one in rows):  # features widen the choices of others
        found = [choice for one in rows for choice in one.choices or ()]
    elif rows[0].nargs:
        found = [["1"] if rows[0].type == "str" else [1], ["linear_qkv"]]
    elif rows[0].type in ("int", "float"):
        own = [one for one in values_in(tree) if isinstance(one, int | float) and not isinstance(one, bool)]
        found = [*own, *(one + 1 for one in own), *(one - 1 for one in own), *_NUMBERS, 8, 64]
    else:
        found = [*(one for one in values_in(tree) if isinstance(one, str)), "other"]
    return [one for one in dict.fromkeys(map(json.dumps, found)) if json.loads(one) != default]


def solutions(
    tree: Sequence[Any], release: str, beside: Mapping[str, object], others: Sequence[Sequence[Any]] = ()
) -> Iterator[dict[str, object]]:
    """Yield settings that meet a condition and none of the others, the fewest first."""
    dests = sorted({name.partition(".")[2] for one in (tree, *others) for name in names_in(one)})
    known = names_by_dest(release)
    base = {dest: value for dest, value in {**_PLAIN, **beside}.items() if dest in known}
    start = {dest: base.get(dest, default_of(dest, release)) for dest in dests}
    choices = {
        dest: [json.loads(one) for one in candidates(dest, ["all", tree, *others], release, start[dest])]
        for dest in dests
    }
    tried = 0
    for count in range(len(dests) + 1):
        for chosen in combinations(dests, count):
            for picked in product(*(choices[dest] for dest in chosen)):
                tried += 1
                if tried > _MOST_TRIED:
                    return
                settings = {**start, **dict(zip(chosen, picked, strict=True))}
                values = {f"argument.{dest}": value for dest, value in settings.items()}
                if is_met(tree, values) and not any(is_met(one, values) for one in others):
                    yield {**base, **dict(zip(chosen, picked, strict=True))}


def as_words(settings: Mapping[str, object], release: str) -> list[str] | None:
    found: list[str] = []
    for dest, value in settings.items():
        words = spell(dest, value, release)
        if words is None and value not in (None, False, default_of(dest, release)):
            return None
        found += words or []
    return found


def holds(condition: str, words: Sequence[str], release: str) -> bool:
    """Return whether ms-tune sees that a program meets a condition."""
    tree = parse_expression(condition)
    command = command_with(words, release)
    values = {name: command.value(name.partition(".")[2]) for name in names_in(tree)}
    return is_met(tree, values)


def is_met(tree: Sequence[Any], values: Mapping[str, object]) -> bool:
    return is_true(evaluate(tree, cast("Scope", values)))  # of which it only looks up names


def programs(
    stops: Sequence[Stop], release: str, seed: int, most: Callable[[int], int], others: Mapping[int, Sequence[int]]
) -> list[Program]:
    """Return programs that meet the conditions: of the fewest settings first, then beside others; with a seed the others first.

    Args:
        stops: The stops.
        release: Their release.
        seed: Of the settings beside them.
        most: Returns how many programs a row of ``stops`` needs.
        others: Other rows, whose conditions the programs of a row must not meet.
    """
    random = Random(seed)  # noqa: S311 - no secret
    found: list[Program] = []
    trees = [parse_expression(stop.condition) if stop.condition else [] for stop in stops]
    for row, stop in enumerate(stops):
        made: dict[str, Program] = {}
        left_out = [trees[one] for one in others.get(row, ())]
        rest = random.sample(BESIDE[1:], len(BESIDE) - 1)
        for number, beside in enumerate((*rest, BESIDE[0]) if seed else (BESIDE[0], *rest)):
            if not stop.condition or len(made) >= most(row):
                break
            for settings in islice(solutions(trees[row], release, beside, left_out), 1 if number else 2):
                words = as_words(settings, release)
                if words is not None and holds(stop.condition, words, release):
                    made[" ".join(words)] = Program(row, words, as_words({**_PLAIN, **beside}, release) or [])
        found += made.values()
    return found


def says(answer: Mapping[str, Any], stop: Stop) -> bool:
    """Return whether a program's end is this stop."""
    if answer.get("stopped") is None or answer["exception"] != stop.error:
        return False
    if str(answer.get("where", "")).startswith(f"{stop.file.rpartition('/')[2]}:{stop.line} "):
        return True
    parts = [re.escape(one) for one in re.split(r"\{[^}]*\}", stop.text.removesuffix("..."))]
    return bool(stop.text.strip("{}")) and re.match(".*".join(parts), " ".join(answer["text"].split())) is not None


class Judged(NamedTuple):
    """How programs that meet a condition ended."""

    said: int  # the number that this stop ended
    free: int  # the number that nothing ended
    known: frozenset[str]  # the other checks that report all that it ended


def judge(sources: Path, release: str, stops: Sequence[Stop], shown: dict[Key, Program]) -> dict[int, Judged]:
    """Run programs for every condition, and keep one that it ends in ``shown``; of another release's, that one is enough.

    If another stop ends them all, others are run that do not meet its condition, and so on.
    """
    ends: dict[int, Counter[str]] = {}
    known: dict[int, list[frozenset[str]]] = {}
    before: dict[int, list[int]] = {}
    again = {row: shown[stop.key] for row, stop in enumerate(stops) if stop.key in shown}
    asked = [one._replace(row=row) for row, one in again.items() if holds(stops[row].condition, one.words, release)]
    asked += programs(stops, release, 0, lambda row: 0 if row in again else 2, {})
    for number in range(1, 1 + _ROUNDS):
        print(f"{release}: {len(asked)} programs", file=sys.stderr, flush=True)  # noqa: T201 - it takes minutes
        for one, answer in zip(asked, run_all(sources / release, stops, asked), strict=True):
            end = "said" if says(answer, stops[one.row]) else "other" if "stopped" in answer else "free"
            ends.setdefault(one.row, Counter())[end] += 1
            if end == "said":
                others = errors(one, release)
                known.setdefault(one.row, []).append(others)
                if not others or stops[one.row].key not in shown:
                    shown[stops[one.row].key] = one
            first = next((row for row, stop in enumerate(stops) if stop.condition and says(answer, stop)), None)
            if end == "other" and first is not None and first not in before.setdefault(one.row, []):
                before[one.row].append(first)
        left = {row for row, end in ends.items() if not end["said"] and not end["free"]}
        asked = programs(stops, release, number, lambda row, left=left: 3 * (row in left), before)  # type: ignore[misc]  # a default
    return {
        row: Judged(end["said"], end["free"], frozenset.intersection(*known.get(row, [frozenset()])))
        for row, end in ends.items()
    }


def run_all(folder: Path, stops: Sequence[Stop], asked: Sequence[Program]) -> list[dict[str, Any]]:
    """Return the answers to programs; for stops of the layers' config with all patches, which may replace its checks."""
    found: dict[int, dict[str, Any]] = {}
    for options in (("config", "quick"), ("config",)):
        some = [at for at, one in enumerate(asked) if ("/core/" in stops[one.row].file) is (len(options) == 1)]
        lines = run(folder, [asked[at].words for at in some], *options) if some else []
        for at, line in zip(some, lines, strict=True):
            found[at] = json.loads(line) if line else {"stopped": "import", "exception": "", "text": ""}
    return [found[at] for at in range(len(asked))]


def errors(program: Program, release: str) -> frozenset[str]:
    """Return the other checks that find errors in a program because of its settings for a condition."""
    return lint_errors(program.words, release) - lint_errors(program.beside, release) - {ID}


def lint_errors(words: Sequence[str], release: str) -> frozenset[str]:
    text = f"export CUDA_DEVICE_MAX_CONNECTIONS=1\ntorchrun --nproc_per_node {world_size(words)} pretrain_gpt.py {shlex.join(words)}\n"
    commands = commands_in(Path("pretrain.sh"), text, release)
    found = [
        one for command in commands for one in lint(command, Dialect.MEGATRON, built_in(Dialect.MEGATRON), release)
    ]
    return frozenset(one.id for one in found if one.severity is Severity.ERROR)


def reason_of(stop: Stop, judged: Judged | None) -> str:
    """Return why a stop is not served; empty if it is."""
    if not stop.condition:
        return stop.reason
    if judged is None:
        return "no program could be made that meets the condition"
    if judged.free:
        return "a value changes before the check"
    return "" if judged.said else "another stop comes first"


def write(
    results: Mapping[str, tuple[Sequence[Stop], Mapping[int, Judged]]], older: Mapping[str, Sequence[Stop]]
) -> None:
    """Write the rows of the checklist, and the figures."""
    served: dict[Key, list[str]] = {}
    figures: dict[str, dict[str, int]] = {}
    for release, (stops, judged) in results.items():
        count: Counter[str] = Counter()
        for row, stop in enumerate(stops):
            reason = reason_of(stop, judged.get(row))
            known = judged[row].known if row in judged else frozenset()
            others = f"served by {min(known)}" if known else "served"
            count[f"out of reach: {reason}" if reason else others] += 1
            if not reason and not known:
                served.setdefault(stop.key, []).append(release)
        figures[release] = {"stops": len(stops), **dict(sorted(count.items()))}
    conditions = {key[-1] for key, releases in served.items() if SERVED[0] in releases}
    for release, stops in reversed([*older.items()]):
        for key in dict.fromkeys(stop.key for stop in stops if stop.condition in conditions):
            served.setdefault(key, []).insert(0, release)
    told = {(condition, tuple(releases)): key for key, releases in reversed(served.items()) for condition in key[3:]}
    lines = [_row(*key, releases) for key, releases in served.items() if key in told.values()]
    lines[0] = lines[0].replace("{refuse:", "{asks-others: true, refuse:", 1)  # other checks say more about a stop
    path = data_folder("checklists") / "megatron_stops.yaml"
    head = path.read_text("utf-8").partition("    test:\n")[0]
    path.write_text(f"{head}    test:\n{''.join(lines)}", "utf-8")
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def _row(file: str, error: str, text: str, condition: str, releases: Sequence[str]) -> str:
    tree = parse_expression(condition)
    options = list(dict.fromkeys(f"--{name.partition('.')[2].replace('_', '-')}" for name in names_in(tree)))
    message = "default" if len(options) > 1 else "one"
    said = f"{error}: {text}" if text.strip("{}") else error
    said = said.replace("{}", "...").replace("`", "").replace("\\", "")
    given = "" if len(releases) == len((*AS_BEFORE, *SERVED)) else f"given: {json.dumps(_releases(releases))}, "
    let = {"release": "framework.release", "options": repr(", ".join(options)), "said": repr(said), "file": repr(file)}
    written = ", ".join(f"{name}: {json.dumps(value)}" for name, value in let.items())
    return f"      - {{refuse: {{{message}: {json.dumps(condition)}}}, {given}let: {{{written}}}, related: other}}\n"


def _releases(releases: Sequence[str]) -> str:
    listed = ", ".join(releases)
    return f"framework.release in ({listed}{',' if len(releases) == 1 else ''})"


def main() -> None:
    """Run the newest release's code with programs for every condition, then the others' with those that stopped it, and their own."""
    folder = Path(os.environ[SOURCES])
    results: dict[str, tuple[list[Stop], dict[int, Judged]]] = {}
    shown: dict[Key, Program] = {}
    for release in reversed(SERVED):
        stops = harvest(folder, release)
        results[release] = (stops, judge(folder, release, stops, shown))
    write({release: results[release] for release in SERVED}, {one: harvest(folder, one) for one in AS_BEFORE})


if __name__ == "__main__":
    main()
