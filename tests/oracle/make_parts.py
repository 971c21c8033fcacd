"""Write ``checklists/mindformers_stops.yaml``: values that MindFormers' classes refuse in the sections that they are built from.

Every argument of every class of the registry is given values of every kind; the class of the release itself
(:mod:`tests.oracle.parts_child`) accepts or refuses them. What all values of a kind, all numbers beyond a limit, or all
texts but some have in common becomes a row, if no other check reports it: path, condition, classes, releases, file and
line of the newest of them. A new release is served by adding it to ``releases.json`` and running
``python -m tests.oracle.make_parts``.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ms_tune.diagnostics import Severity
from ms_tune.enums import Dialect
from ms_tune.facts.query import data_folder, served
from ms_tune.lint.result import FileReport, LintRequest
from ms_tune.lint.runner import STDIN, LintRun, LintTarget, check_file
from ms_tune.lint.settings import ProjectSettings
from tests.oracle import wheels

IDS = {Dialect.MINDFORMERS: "MST575", Dialect.MINDFORMERS_PYNATIVE: "MST585"}
FIGURES = Path(__file__).parents[1] / "data" / "mindformers_stops.json"
PATHS = {
    Dialect.MINDFORMERS: data_folder("checklists") / "mindformers_stops.yaml",
    Dialect.MINDFORMERS_PYNATIVE: data_folder("checklists") / "mindformers_pynative_stops.yaml",
}
_TEMPLATES = {
    Dialect.MINDFORMERS: "mindformers/qwen3_0_6b.yaml",
    Dialect.MINDFORMERS_PYNATIVE: "mindformers_pynative/deepseek3_1b_moe.yaml",
}
_DYNAMIC = "dynamic:"
_HANDLER = "train_dataset.data_loader.handler"
_SCALE = "runner_wrapper.scale_sense"
# Sections that are read only with a switch.
_SWITCHES = {
    "monitor_config": "monitor_config.monitor_on is True",
    "train_dataset.token_monitor_config": "train_dataset.token_monitor is True",
}
# No mappings: a builder may make an object of one.
PROBES: dict[str, tuple[Any, ...]] = {
    "int": (-1000, -1, 0, 1, 2, 1000),
    "float": (-1000.5, -0.5, 0.0, 0.5, 1.0, 1.5, 1000.5),
    "bool": (True, False),
    "str": ("", "some text", "2"),
    "list": (
        [],
        [1],
        [0.5],
        ["a"],
        [1, 2],
        [0.5, 0.6],
        ["a", "b"],
        ["1", "a"],
        [1, 2, 3],
        [1, 2, 3, 4],
        [0.5, 0.6, 0.7],
        [[1]],
        [[[1.0, 2.0, 3.0], 2], [[1.0, 2.0, 3.0], 1]],
        [{"type": "A"}],
    ),
}
# What classes need, and the arguments that replace others: those are checked only without their replacement.
NEEDED = {
    "learning_rate": 1e-3, "warmup_steps": 10, "lr_end": 1e-6, "base_lr": 1e-3, "t_max": 100, "t_0": 10,
    "decay_start_steps": 50, "config": {"seq_length": 64, "split": "1, 0, 0", "data_path": ["1", "data"], "create_compressed_eod_mask": False}, "load": {"path": "json"}, "target_modules": ".*",
    "loss_scale_value": 65536, "scale_factor": 2, "scale_window": 1000, "max_scale_window": 1000, "min_scale_window": 20, "seq_length": 64,
    "token_monitor_config": {"top_n": 10}, "sizes": [1, 0, 0], "datasets_type": "GPTDataset",
}  # fmt: skip
_INSTEAD = {"warmup_steps": "warmup_ratio", "decay_steps": "decay_ratio", "decay_start_steps": "decay_start_ratio"}
_SHARE = 0.3
# Texts of refusals that a value of the same kind may not meet: a choice, or a file.
_CHOSEN = re.compile(
    r"(?i)exist|not found|support|no such|must be in|should be in|can only be|one of \[|choose|invalid|incompatible|length|empty"
)
_QUOTED = re.compile(r"['\"]([\w.-]{1,40})['\"]")
_LONGEST_CHOICE = 40
_OTHER_TEXT = "some other text"
_FUSED = ("AdamW", "PmaAdamW")  # of the static graph, with another class behind a switch
# Refusals of one argument that another one causes.
LEFT_OUT = re.compile(
    r"lr_end \(1e-06\)|Cannot combine manual lr|requires relative_step|only supports compression|requires \w+=|less than or equal to \w+_"
)


class Subject(NamedTuple):
    """An argument of a class."""

    part: str  # the section, for the dynamic graph with a prefix
    kind: str  # the class, with its other names behind a bar; empty for a section of its own
    name: str

    @property
    def dialect(self) -> Dialect:
        return Dialect.MINDFORMERS_PYNATIVE if self.part.startswith(_DYNAMIC) else Dialect.MINDFORMERS

    @property
    def section(self) -> str:
        section = self.part.removeprefix(_DYNAMIC)
        return f"{section}.*" if section in ("callbacks", _HANDLER) else section

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"


class Found(NamedTuple):
    """A condition that a class refuses: the expression, and the first refusal of the class."""

    subject: Subject
    condition: str
    said: str
    file: str
    line: int
    values: tuple[str, ...]  # the refused ones, as JSON
    guard: str = ""  # another condition


Answer = list[Any] | None


class Release:
    """The classes of a release, and what they say to every value."""

    def __init__(self, release: str, folder: Path) -> None:
        self.release, self.folder = release, folder
        wheel = wheels.wheel(release)
        assert isinstance(wheel, Path), wheel
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.folder)
        command = [sys.executable, "-u", str(Path(__file__).with_name("parts_child.py"))]
        environment = os.environ | {"PYTHONPATH": str(self.folder)}
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(
            command, cwd=self.folder, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )
        self.known = self._read()
        self.subjects = [
            Subject(part, kind, name)
            for part, kinds in self.known.items()
            for kind, names in kinds.items()
            for name in names
            if (part, name) != ("optimizer", "learning_rate")
        ]

    def close(self) -> None:
        """End the process of the classes."""
        self.child.communicate()

    def _read(self) -> Any:  # noqa: ANN401 - as above
        assert self.child.stdout is not None
        return json.loads(next(line for line in self.child.stdout if line.startswith("@"))[1:])

    def base(self, subject: Subject) -> dict[str, Any]:
        """Return what the class needs but for the argument."""
        names = {one.partition(".")[0] for one in self.known[subject.part][subject.kind]}
        if subject.part == "dynamic:optimizer":
            names.discard("learning_rate")  # the trainer gives it
        return {name: deepcopy(value) for name, value in NEEDED.items() if name in names and name != subject.name}

    def answers(self, asked: Iterable[tuple[Subject, dict[str, Any]]]) -> list[Answer]:
        """Return the answers to whole sections."""
        assert self.child.stdin is not None
        found = list[Answer]()
        for one, values in asked:
            self.child.stdin.write(json.dumps([one.part, one.kind, values]) + "\n")
            self.child.stdin.flush()
            found.append(self._read())
        return found

    def variants(self, subject: Subject) -> list[tuple[str, dict[str, Any]]]:
        """Return what else may stand in the section, with the conditions for it: what only one refuses is a row with its condition."""
        base = self.base(subject)
        other = _INSTEAD.get(subject.name)
        if other is not None and other in self.known[subject.part][subject.kind]:
            return [(f"not known(SECTION.{other})", base), ("", {**base, other: _SHARE})]
        if subject.part == "optimizer" and subject.kind in _FUSED:
            return [
                ("either(SECTION.use_fused, False) is not True", base),
                ("SECTION.use_fused is True", {**base, "use_fused": True}),
            ]
        return [("", base)]

    def found(self) -> Iterator[Found]:
        """Yield the conditions of all arguments."""
        every = [(subject, guard, base) for subject in self.subjects for guard, base in self.variants(subject)]
        values = [value for some in PROBES.values() for value in some]
        answers = iter(
            self.answers(
                (subject, with_value(base, subject.name, value))
                for subject, _, base in every
                for value in (None, *values)
            )
        )
        made: dict[Subject, list[tuple[str, list[Found]]]] = {}
        for subject, guard, base in every:
            starts = next(answers) is None
            said = {kind: [(value, next(answers)) for value in values] for kind, values in PROBES.items()}
            found: list[Found] = []
            if starts or (subject.name in NEEDED and not all(answer for some in said.values() for _, answer in some)):
                found = [*conditions(subject, said), *self.choices(subject, base, said["str"])]
                if not any(" < " in one.condition or " > " in one.condition or "<=" in one.condition for one in found):
                    found += self.relations(subject, base, said)
            made.setdefault(subject, []).append((guard, found))
        for some in made.values():
            shared = set.intersection(*({one.condition for one in found} for _, found in some))
            for guard, found in some:
                for one in found:
                    if one.condition not in shared:
                        if guard:
                            yield one._replace(guard=guard)
                    elif found is some[0][1]:
                        yield one

    def choices(self, subject: Subject, base: dict[str, Any], texts: Sequence[tuple[Any, Answer]]) -> Iterator[Found]:
        """Yield the refused texts: all but those in the refusal, or that its function compares with, that the class takes."""
        refused = next((one for one in texts if one[1] and one[1][0] != "TypeError"), texts[0])
        if not refused[1] or not all(answer for text, answer in texts if text) or _PYTHON.search(refused[1][1]):
            return
        asked = sorted({*_QUOTED.findall(refused[1][1]), *self.compared(*refused[1][2:])} - {refused[0], ""})
        answers = self.answers((subject, with_value(base, subject.name, text)) for text in asked)
        taken = [text for text, answer in zip(asked, answers, strict=True) if answer is None]
        if taken:
            empty = [text for text, answer in texts if not text and answer is None]
            listed = ", ".join(map(repr, [*taken, *empty, *(taken if len(taken) + len(empty) == 1 else ())]))
            yield _found(subject, f"kind(value) == 'str' and value not in ({listed})", texts, texts[1])
            asked_lists = [(subject, with_value(base, subject.name, some)) for some in ([taken[0]], [_OTHER_TEXT])]
            good, bad = self.answers(asked_lists)
            if good is None and bad:
                condition = f"kind(value) == 'list' and any(item not in ({listed}) for item in value)"
                yield _found(subject, condition, texts, ([_OTHER_TEXT], bad))
        elif refused[1][0] != "TypeError" and not _CHOSEN.search(refused[1][1]) and all(answer for _, answer in texts):
            yield _found(subject, "kind(value) == 'str'", texts, texts[1])

    def compared(self, file: str, line: int) -> set[str]:
        """Return the texts that the function with this line compares with."""
        path = self.folder / file
        tree = ast.parse(path.read_text("utf-8")) if path.is_file() else ast.Module([], [])
        around = [
            one
            for one in ast.walk(tree)
            if isinstance(one, ast.FunctionDef) and one.lineno <= line <= (one.end_lineno or 0)
        ]
        inside = (one for function in around for one in ast.walk(function) if isinstance(one, ast.Compare))
        texts = (one.value for compare in inside for one in ast.walk(compare) if isinstance(one, ast.Constant))
        return {text for text in texts if isinstance(text, str) and len(text) < _LONGEST_CHOICE}

    def relations(
        self, subject: Subject, base: dict[str, Any], said: Mapping[str, Sequence[tuple[Any, Answer]]]
    ) -> Iterator[Found]:
        """Yield the numbers above or below another argument: they are accepted if that one is far enough away."""
        numbers = [one for kind in ("int", "float") for one in said[kind]]
        refused = [one for one in numbers if one[1] and one[1][0] != "TypeError"]
        for other, given in base.items():
            if isinstance(given, bool) or not isinstance(given, (int, float)):
                continue
            for sign, far in ((">", 1e9), ("<", -1e9)):
                some = [one for one in refused if (one[0] > given if sign == ">" else one[0] < given)]
                moved = {**base, other: type(given)(far)}
                asked = [(subject, with_value(moved, subject.name, value)) for value, _ in some]
                answers = self.answers([*asked, (subject, with_value(base, subject.name, given))])
                if some and not any(answers[:-1]):
                    equal = "=" if answers[-1] else ""
                    yield _found(
                        subject,
                        f"kind(value) in ('int', 'float') and value {sign}{equal} SECTION.{other}",
                        some,
                        some[-1],
                    )


def with_value(values: Mapping[str, Any], name: str, value: object) -> dict[str, Any]:
    """Return values with one more, whose name may have two parts; without it for None."""
    made = deepcopy(dict(values))
    first, _, second = name.partition(".")
    if value is not None:
        (made[first] if second else made)[second or first] = deepcopy(value)
    return made


def conditions(subject: Subject, said: Mapping[str, Sequence[tuple[Any, Answer]]]) -> Iterator[Found]:
    """Yield what refused values have in common: their kind, their length, or that they are beyond a limit."""
    whole = [kind for kind, some in said.items() if all(answer for _, answer in some)]
    for kind in whole:
        of_type = all(answer and (answer[0] == "TypeError" or _PYTHON.search(answer[1])) for _, answer in said[kind])
        if kind != "str" or of_type:  # other refusals of texts: :meth:`Release.choices`
            yield _found(subject, f"kind(value) == {kind!r}", said[kind], said[kind][1])
    falsy: list[str] = []
    for kind, zero in (
        ("int", "value != 0"),
        ("float", "value != 0"),
        ("list", "len(value) > 0"),
        ("str", "value != ''"),
    ):
        refused = [one for one in said[kind] if one[1]]
        is_falsy_taken = all(bool(value) == bool(answer) for value, answer in said[kind])
        if is_falsy_taken and all(answer and answer[0] in ("TypeError", "AttributeError") for _, answer in refused):
            falsy.append(kind)
            yield _found(subject, f"kind(value) == {kind!r} and {zero}", refused, refused[-1])
    numeral = [one for one in said["str"] if one[1] and one[0] != "2"]
    if (
        "str" not in whole
        and len(numeral) == len(said["str"]) - 1
        and not any(_CHOSEN.search(answer[1]) for _, answer in numeral if answer)
    ):
        yield _found(subject, "kind(value) == 'str' and not numeral(value)", numeral, numeral[-1])
    if "list" not in whole:
        yield from _lengths(subject, said["list"])
        yield from _elements(subject, said["list"])
    yield from _limits(subject, {kind: said[kind] for kind in ("int", "float") if kind not in (*whole, *falsy)})


def _limits(subject: Subject, said: Mapping[str, Sequence[tuple[Any, Answer]]]) -> Iterator[Found]:
    """Yield the refusal of numbers beyond a limit, which is 0 or 1, if the accepted ones are one range."""
    numbers = sorted((one for some in said.values() for one in some), key=lambda one: one[0])
    taken = [value for value, answer in numbers if not answer]
    if not taken or any(answer[0] == "TypeError" and _PYTHON.search(answer[1]) for _, answer in numbers if answer):
        return
    guard = "kind(value) in ('int', 'float')" if len(said) > 1 else f"kind(value) == {min(said)!r}"
    low = [one for one in numbers if one[0] < taken[0]]
    high = [one for one in numbers if one[0] > taken[-1]]
    if len(low) + len(high) + len(taken) != len(numbers):
        return  # not one range
    if low and low[-1][0] == 0:
        yield _found(subject, f"{guard} and value <= 0", low, low[0])
    elif low and taken[0] in (0, 1):
        yield _found(subject, f"{guard} and value < {taken[0]:g}", low, low[0])
    if high and taken[-1] == 1:
        yield _found(subject, f"{guard} and value > 1", high, high[-1])
    elif high and high[0][0] == 1:
        yield _found(subject, f"{guard} and value >= 1", high, high[-1])


def _lengths(subject: Subject, lists: Sequence[tuple[Any, Answer]]) -> Iterator[Found]:
    """Yield the refusal of lists that are shorter, or not as long, as those that are accepted."""
    lengths = {len(value) for value, answer in lists if not answer}
    other = [one for one in lists if len(one[0]) not in lengths]
    short = [one for one in other if lengths and len(one[0]) < min(lengths)]
    if lengths and min(lengths) > 1 and short:
        exact = len(lengths) == 1 and len(other) > len(short)
        sign = "!=" if exact else "<"
        yield _found(
            subject, f"kind(value) == 'list' and len(value) {sign} {min(lengths)}", other if exact else short, short[0]
        )


def _elements(subject: Subject, lists: Sequence[tuple[Any, Answer]]) -> Iterator[Found]:
    """Yield the refusal of lists of one kind, if lists as long of another kind are accepted."""
    lengths = {len(value) for value, answer in lists if value and not answer}
    for kind, type_ in (("int", int), ("float", float), ("str", str), ("list", list), ("dict", dict)):
        some = [one for one in lists if len(one[0]) in lengths and all(isinstance(item, type_) for item in one[0])]
        # Numbers may be refused for their size.
        is_refused = all(answer and (kind == "str" or answer[0] == "TypeError") for _, answer in some)
        if some and is_refused:
            condition = f"kind(value) == 'list' and len(value) > 0 and all(kind(item) == {kind!r} for item in value)"
            yield _found(subject, condition, some, some[0])


def _found(subject: Subject, condition: str, some: Sequence[tuple[Any, Answer]], shown: tuple[Any, Answer]) -> Found:
    assert shown[1]
    error, text, file, line = shown[1]
    said = cut(text, shown[0])
    return Found(
        subject,
        condition,
        f"{error}: {said}" if said else error,
        file,
        line,
        tuple(json.dumps(value) for value, _ in some),
    )


# Python's own words for a value of another type than the code expects.
_PYTHON = re.compile(
    r"not supported between|unsupported operand|can only concatenate|has no (?:len|attribute)|not (?:subscriptable|iterable)|os\.PathLike"
)


def cut(text: str, value: object) -> str:
    """Return a text without the value, and without the part that says which it was."""
    text = " ".join(text.split())
    if _PYTHON.search(text):
        return ""
    text = re.sub(r" with value (?:.* )?(?=is not)| between 1 and \d+!?", " ", text).replace("  ", " ")
    text = re.sub(r"[,.]? *(?:(?:[Bb]ut|and) (?:\w+ )?(?:is|got|gets?|given|found|was)\b|got (?!multiple)).*", "", text)
    text = text.replace(repr(value), "...").replace(value if isinstance(value, str) and value else repr(value), "...")
    text += ")" * sum(text.count(one) - text.count(other) for one, other in ("()", "[]"))  # one that was cut away
    return text if len(text) <= 160 else f"{text[:157]}..."


# What lint says.


def template(dialect: Dialect) -> Any:  # noqa: ANN401 - whatever YAML holds
    return yaml.safe_load((data_folder("yaml_templates") / _TEMPLATES[dialect]).read_text("utf-8"))


def placed(subject: Subject, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as above
    """Return a packaged config with a section of these values."""
    data = template(subject.dialect)
    given = {"type": subject.kind.partition("|")[0], **values} if subject.kind else dict(values)
    section = subject.part.removeprefix(_DYNAMIC)
    if section == "callbacks":
        data[section] = [given]
    elif section == _HANDLER:
        loader = {"type": "HFDataLoader", "load_func": "load_dataset", "path": "json", "handler": [given]}
        data["train_dataset"]["data_loader"] = loader
    elif section == _SCALE:
        data["runner_wrapper"]["scale_sense"] = given
    elif section in ("train_dataset.data_loader", "train_dataset.dataloader"):
        name = section.rpartition(".")[2]
        old = data["train_dataset"][name]
        given["config"] = {**old["config"], **given.get("config", {})}
        data["train_dataset"][name] = {**old, **given}
    else:
        data[section] = given if subject.kind else {**(data.get(section) or {}), **given}
    if section == "monitor_config":
        data[section]["monitor_on"] = True
    if "token_monitor_config" in given:
        data[section]["token_monitor"] = True
    if "train_dataset_task" in data:
        data["train_dataset_task"]["dataset_config"] = data["train_dataset"]
    return data


def linted(data: object, dialect: Dialect, release: str) -> Counter[str]:
    """Return the checks that report an error or a warning, each with its number."""
    text = yaml.safe_dump(data, sort_keys=False).encode()
    request = LintRequest(dialect, release, stdin=text, settings=False, baseline=False, processes=1)
    report = check_file(LintTarget(STDIN, named=True), LintRun(request, ProjectSettings(None, Path("/"))))
    if not isinstance(report, FileReport):
        return Counter(["unread"])
    return Counter(one.id for one in report.findings if one.severity in (Severity.ERROR, Severity.WARNING))


# The rows.

_CLASS = "\0"  # stands for the class in a text
_KIND = re.compile(r"kind\(value\) == '\w+'")


class Key(NamedTuple):
    """What classes and releases share."""

    dialect: Dialect
    path: str
    condition: str
    guard: str
    said: str
    file: str


def key_of(one: Found) -> Key:
    said = one.said.replace(one.subject.kind.partition("|")[0] or _CLASS, _CLASS)
    return Key(one.subject.dialect, one.subject.path, one.condition, one.guard, said, one.file)


def main(folder: Path) -> None:
    """Run the classes of all releases, and write the rows and the figures."""
    kinds: dict[Key, dict[str, list[str]]] = {}
    lines: dict[Key, tuple[str, int]] = {}
    others: dict[Key, str] = {}
    figures: dict[str, Counter[str]] = {}
    for name in reversed(wheels.RELEASES):
        release = Release(name, folder / name)
        count = figures[name] = Counter({"arguments": len(release.subjects)})
        for one in release.found():
            key = key_of(one)
            if key not in others:
                others[key] = "left out" if LEFT_OUT.search(one.said) else ""
                lines[key] = (name, one.line)
            count[others[key] or "served"] += 1
            kinds.setdefault(key, {}).setdefault(one.subject.kind, []).insert(0, name)
        release.close()
    rows: dict[Dialect, list[str]] = {dialect: [] for dialect in PATHS}
    together: dict[Any, list[Key]] = {}  # what differs only in the condition
    for key, releases in kinds.items():
        for some in dict.fromkeys(map(tuple, releases.values())) if not others[key] else ():
            names = tuple(
                sorted(name for names, one in releases.items() if tuple(one) == some for name in names.split("|"))
            )
            together.setdefault((key._replace(condition=""), names, some), []).append(key)
    for (about, names, some), keys in together.items():
        rows[about.dialect].append(_row(about, [one.condition for one in keys], names, some, lines[keys[0]]))
    for dialect, path in PATHS.items():
        rows[dialect][0] = rows[dialect][0].replace("{each:", "{asks-others: true, each:", 1)
        write_rows(path, IDS[dialect], rows[dialect])
    made = {name: dict(sorted(count.items())) for name, count in reversed(figures.items())}
    FIGURES.write_text(json.dumps(made, indent=1) + "\n", "utf-8")


def write_rows(path: Path, check: str, rows: Iterable[str]) -> None:
    """Replace the rows of one of a checklist's checks."""
    before, mark, rest = path.read_text("utf-8").partition(f"  - id: {check}\n")
    head, _, old = rest.partition("    test:\n")
    _, others, after = old.partition("\n  - id: ")
    path.write_text(f"{before}{mark}{head}    test:\n{''.join(rows)}{others}{after}", "utf-8")


def _row(
    key: Key, conditions_: Sequence[str], names: Sequence[str], releases: Sequence[str], line: tuple[str, int]
) -> str:
    """Return the row of what is refused with the same text."""
    dialect, path, _, guard, said, file = key
    section = path.rpartition(".")[0].removesuffix(".config")
    place = "within" if ".*" in section else section
    given = [guard.replace("SECTION", place)] if guard else []
    conditions_ = [one.replace("SECTION", place) for one in conditions_]
    if names != ("",):
        given.insert(0, f"{place}.type {_among([repr(one) for one in sorted(names)])}")
    if section in _SWITCHES:
        given.append(_SWITCHES[section])
    if [*releases] != [*served(dialect)]:
        given.append(f"framework.release {_among(releases)}")
    kinds = [one.split("'")[1] for one in conditions_ if _KIND.fullmatch(one)]
    listed = f"kind(value) {_among([repr(one) for one in kinds])}"
    condition = " or ".join([*([listed] if kinds else []), *(one for one in conditions_ if not _KIND.fullmatch(one))])
    quoted = said.replace(_CLASS, names[0] if len(names) == 1 else "...").replace("`", "").replace("\\", "")
    let = {
        "release": "framework.release",
        "said": repr(quoted),
        "file": repr(f"{file}:{line[1]}" if file else "MindSpore"),
        "seen": repr(line[0]),
    }
    written = ", ".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in let.items())
    asked = f"given: {json.dumps(' and '.join(given))}, " if given else ""
    return f"      - {{each: {json.dumps(path)}, {asked}refuse: {json.dumps(condition)}, let: {{{written}}}}}\n"


def _among(names: Sequence[str]) -> str:
    return f"== {names[0]}" if len(names) == 1 else f"in ({', '.join(names)})"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as unpacked:
        main(Path(unpacked))
