"""Find differences between two answers of ms-tune to one command line, for ``same_answers.py``; two tables list the intended ones.

Answers in JSON are compared value by value; list items are paired by their subject (a finding by its check and
position), and the order of fields is ignored. Other answers and standard error are compared line by line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

# New names of fields of the old version's JSON, by the command and the parent fields (without lists):
# "lint.findings.check": "id". Parent fields have their old names.
RENAMED: dict[str, str] = {}
# Intended differences with their reasons: a fixed defect, a new wording. A pattern matches the complete difference as
# printed: its kind, a colon, and both values in full length. Example: r"lint findings\[MST401\]\.severity: .*": "it
# stops the run, and is now an error".
_IN_CHECKOUT = r'.*"file": "[^"]*(MindSpeed-LLM-|fork_arguments|mindformers_checkout_1_4/).*'
_CHUNKS_WITHOUT_STAGES = "a job without stages that has lists of layers for several chunks ended check with a traceback"
_COUNTED = "so many findings are gone; each is compared by itself"
_OWN_ARGUMENT = "the repository around the script defines the argument, or gives it the choice"
_OWN_CLASS = "the repository around the config registers the class"
_OWN_RELEASE = "the repository around the config says that it is MindFormers 1.4.0, to which 1.6 is nearest"
_EXTGLOB = "the script says `shopt -s extglob`, with which bash reads on"
_CAUSE = "an unknown that a loop leaves has the name of the command that causes it, and its place"
_ONCE = "what is started in a loop that counts is told once, for all rounds"
_WAITED = "`wait $PID` sets no variable: programs whose names were unknown behind it are read"
_RETRIED = (
    "a function that calls itself is followed to its end: the script starts five programs, none of which is unknown"
)
_PIPED = "a text that is piped into a shell is not read, and named instead"
_XARGS = "xargs is what runs it"
_LABELLED = (
    "the rank that torchrun or srun puts before each line is no part of the line, in a report of missing memory either"
)
_WRITTEN = "the finding stands at the first of the sizes that is written, not at the program"
_NO_NUMBER = "a size that is no number is told by itself (MST475), and no longer taken for 1 in a product"
_LESS_FIXED = "Python code is fixed where MindSpore's settings or mint are meant; the finding says what to write"
_OF_26_0 = "a YAML of MindSpeed-MM whose keys are all at 26.0's place is judged by 26.0"
_ASSUMED = "a value that a missing file of the team may set is assumed to be its default, and no longer unknown"
_BLANK = "a blank after the backslash is reported as what it is"
_WORDS = "the texts were rewritten; the figures are rounded or say the same"
_PARTS = "check shows all its parts with what is known, and gives the exit code of its worst part"
_RANGE = "an estimate has a range of its own kind of job, and counts what the simulated runs of such jobs hold"
_SIZES = "the sizes are given by a default of the parser, or by a table of public models"
_OF_LINT = "the findings of check are those of lint, once; the plan's own message about the same key is not repeated"
_HARVESTED = "a row read from the framework's source reports the same, and quotes it"
_PROGRAM = "a config is missing only if the program that reads it is there"
_NO_CLIP = "0 is no 'off' in the dynamic graph: every gradient would be multiplied by zero"
_FOLLOWED = "the old shell reader did not follow how the script starts its program"
_CHANGED_SCALE = "a model with experts needs its scale in 1.9, as its class says"
_NO_TRAINING = "a script for inference or evaluation has no estimate of training"
_GEMMA = "the layers of the specifications of Gemma 2 and Grok are read, and what follows from them"
_FSDP2 = "what MindSpeed-LLM's FSDP2 programs are started with is checked"
_SCREEN = "check shows its screen, with the findings, for a config whose job cannot be determined, too"
EXPECTED: dict[str, str] = {
    r"check files\[\] is new: .*": _SCREEN,
    r'check files\[\]\.memory: "(not told by|will not fit, by|far below).* -> "(inconclusive|estimated to).*': _WORDS,
    r'check files\[\]\.change\.text: ".*about a third slower.*" -> ".*about 33% slower.*"': _WORDS,
    r'migrate proof\[\]\.detail: "\d+ parameters, .*bytes.*" -> "[\d,]+ parameters, .*GiB.*"': _WORDS,
    r'.*\[bool-counts\]\.message: .*counts as one layer\." -> ".*counts as 1\."': _WORDS,
    r'check stderr: ".*error: .*" -> \(nothing\)': _SCREEN,
    r'.*\[MST133\]\.name: "option-set-anew" -> "option-always-overwritten"': "a check that no release had has a plain name",
    r"lint(@[\d.]+)? findings\[MST133\]\.more\.command: .*": "a check that no release had has a plain name",
    r'migrate keys\[\]\.why: ".*start anew\?" -> ".*"': "the texts were rewritten",
    r'check (exit code: 3 -> 1|trouble: "IndexError: tuple index out of range" -> \(nothing\))': _CHUNKS_WITHOUT_STAGES,
    r'check files\[\]\.model: "" -> ".+"': "the config.json of the model names it, into which check did not look",
    rf"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST15[03]\] is gone: {_IN_CHECKOUT}": _OWN_ARGUMENT,
    rf"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST(529|530)\] is gone: {_IN_CHECKOUT}": _OWN_CLASS,
    r'.* of a program: "refused by its parser" -> "taken"': _OWN_ARGUMENT,
    r"(lint(@[\d.]+)? summary\.(errors|warnings)|check files\[\]\.counts\.(error|warning)): \d+ -> \d+": _COUNTED,
    r"memory (layers|full_layers|extrapolated_from_layers|remedies_scaled_from_layers) is new: .*": "they say of which layers",
    r'lint(@[\d.]+)? findings\[MST\d+\]\.related\[\]\.message: "here" -> "the other option"': _WORDS,
    r"lint(@[\d.]+)? findings\[MST566\]\.message: .* wants more than zero.* -> .* must be greater than 0.*": _WORDS,
    r"lint(@[\d.]+)? exit code: 1 -> 0": _OWN_ARGUMENT,
    r'check files\[\]\.next: \["ms-tune lint \S+/fork_arguments/\S+", "(.*)"\] -> \["\1"\]': _OWN_ARGUMENT,
    r'(lint(@[\d.]+)? summary\.checked_for\[\]\.version|\S+ framework_version): "1\.9" -> "1\.6"': _OWN_RELEASE,
    r'lint(@[\d.]+)? summary\.checked_for\[\]\.installed: "1\.9\.0" -> null': _OWN_RELEASE,
    r'lint(@[\d.]+)? stderr: \(nothing\) -> "warning: \S+: a checkout of MindFormers 1\.4\.0, .*': _OWN_RELEASE,
    r'check files\[\]\.framework: "MindFormers 1\.9" -> "MindFormers 1\.6"': _OWN_RELEASE,
    r"lint(@[\d.]+)? findings\[MST840\] is gone: .*/(run_distribute|extglob)\.sh.*": _EXTGLOB,
    r'normalize-recompute(@[\d.]+)? jobs\[\]\.not_evaluable\.unknown: "" -> "export"': _CAUSE,
    r'(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST199\]\.message: ".*\(\$?\).*" -> ".*\(export\).*"': _CAUSE,
    r"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST199\]\.(line|column|end_line|end_column): 1 -> \d+": _CAUSE,
    r"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST199\] is gone: .*benchmark_qwen25_7b_bound_analysis\.sh.*": _RETRIED,
    r'normalize-recompute(@[\d.]+)? jobs\[\] is gone: .*"line": 233, .*"unknown": "(TP|run_case)".*': _RETRIED,
    r'normalize-recompute(@[\d.]+)? jobs\[\]\.not_evaluable\.unknown: "TP" -> .*': _RETRIED,
    r'migrate stderr: "error: the script starts 47 programs.*" -> "error: the script starts 5 programs.*"': _RETRIED,
    r"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST835\] is new: .*/run_audio_perf_experiment\.sh.*": _WAITED,
    r"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST835\] is gone: .*/(run_distribute_ps|run_train_os)[\w.-]+\.sh.*": _ONCE,
    r"lint(@[\d.]+)? findings\[MST842\] is new: .*MST842-[\w-]+-good/example\.sh.*": _PIPED,
    r'lint(@[\d.]+)? findings\[MST842\]\.message: "what bash gets (.*)" -> "what xargs gets .*"': _XARGS,
    r'check files\[\]\.next: \[\] -> \["ms-tune lint \S+/run_audio_perf_experiment\.sh"\]': _WAITED,
    r"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST(157|487)\]\.(line|column|end_line|end_column|key_path): .*": _WRITTEN,
    r'(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST157\]\.message: " 1 is no multiple .*': _WRITTEN,
    r"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST491\]\.(line|column|end_line|end_column): .*": _WRITTEN,
    r'(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST476\] is gone: .*"message": "fully_shard_parallel_size .*': _NO_NUMBER,
    r"lint(@[\d.]+)? findings\[MST9(10|11|12|19|22)\]\.fix: .* -> null": _LESS_FIXED,
    r'memory where: null -> ".+:\d+"': _LABELLED,
    r"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST471\] is gone: .*is read by nothing; it belongs into features.*": _OF_26_0,
    r'lint(@[\d.]+)? summary\.checked_for\[\]\.version: "26\.1" -> "26\.0"': _OF_26_0,
    r"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST199\] is gone: .*/env_\w+\.sh.*": _ASSUMED,
    r"lint(@[\d.]+)? findings\[MST840\] is new: .*a blank after the backslash.*": _BLANK,
    r"lint(@[\d.]+)? summary\.fixable(_unsafe)?: \d+ -> \d+": _COUNTED,
    r"check failed is new: .*": _PARTS,
    r"check exit code: [01234] -> [0124]": _PARTS,
    r"check files\[\]\.(sizes|not_compared_because|no_estimate_hint|estimated_as|change\.settings) is new: .*": _PARTS,
    r"check files\[\]\.(change|next|assumptions|framework|no_estimate_because|change\.\w+): .*": _PARTS,
    r"check files\[\]\.matters\[[\w-]+\]\.more is new: .*": _PARTS,
    r'check files\[\]\.memory: "memory is not estimated.*" -> ".*"': _SIZES,
    r"check files\[\]\.estimate: null -> .*": _SIZES,
    r"check files\[\]\.estimate\.(stages\[\]\.)?\w+_bytes(: .*| is new: .*)": _RANGE,
    r"check files\[\]\.estimate\.(simulated_peaks_were|outlook|stage): .*": _RANGE,
    r"check files\[\]\.matters\[([a-z-]+)?\] is (gone|new): .*": _OF_LINT,
    r"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST(175|575)\](\.[\w.\[\]]+| is new): .*": _HARVESTED,
    r"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST(186|193|541)\] is gone: .*": _HARVESTED,
    r"lint(@[\d.]+)? findings\[MST836\] is gone: .*": _PROGRAM,
    r'(normalize-recompute|migrate) stderr: ".*MST835-.*" -> .*': _PROGRAM,
    r"check files\[\]\.memory: null -> .*": _PARTS,
    r"check files\[\]\.layers: null -> \d+": _SIZES,
    r"check files\[\]\.estimate: \{.* -> null": _NO_TRAINING,
    r"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST153\] is gone: .*--model-type-hf.*": _OWN_ARGUMENT,
    r"memory rows_unreleased is new: .*": "rows whose release a damaged trace lacks are counted",
    r"memory (late_free_bytes_ticks|never_freed(_bytes)?|step_bytes|highest|holes_at_peak\.by_stream) is gone: .*": "no screen shows it",
    r"memory remedies\[[\w-]+\]\.how_by_dialect\.hyper-parallel is new: .*": "HyperParallel has keys for them",
    r'migrate proof\[\]\.detail: "no errors, .*" -> "0 errors, .*"': _WORDS,
    r"lint(@[\d.]+)? exit code: 0 -> 1": _COUNTED,
    r'normalize-recompute(@[\d.]+)? stderr: ".*(gemma2|grok)_spec.*" -> \(nothing\)': _GEMMA,
    r"normalize-recompute(@[\d.]+)? (exit code: 2 -> 0|output: \(nothing\) -> .*)": _GEMMA,
    r"normalize-recompute(@[\d.]+)? (layers\[\] is new|placement|formative): .*": _GEMMA,
    r"normalize-recompute(@[\d.]+)? problems\[core-rejected\] is gone: .*": _OWN_RELEASE,
    r"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST403\] is gone: .*": _OWN_RELEASE,
    r'migrate keys\[\]\.(fate: "ask" -> "translated"|to: .*|new_value: null -> .*|why: .* -> null|blocks: true -> false)': _GEMMA,
    r"migrate (counts\.\w+|added\[\] is new|proof\[\]\.(holds|detail)): .*": _GEMMA,
    r'lint(@[\d.]+)? failed\[\] is gone: .*"this script starts PyTorch programs: not checked".*': _FSDP2,
    r"lint(@[\d.]+)? (exit code: 2 -> 0|summary\.(files|unreadable): \d+ -> \d+|summary\.checked_for\[\] is new: .*)": _FSDP2,
    r'lint(@[\d.]+)? stderr: ".*this script starts PyTorch programs.*" -> \(nothing\)': _FSDP2,
    r'(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST15[03]\]\.severity: "error" -> "warning"': _OWN_ARGUMENT,
    r"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST5(26|27|29|30|35|36)\](\.\w+: .*| is gone: .*)": _OWN_CLASS,
    r"lint(@[\d.]+)? findings\[MST480\]\.consequence\.id: .*": "recomputation is skipped and the copy stays",
    r"migrate added\[\]\.value: 0\.0 -> 1000000000\.0": _NO_CLIP,
    r"(lint(@[\d.]+)? findings|check files\[\]\.matters)\[MST33519\] is new: .*qwen3_30b_a3b.*": _CHANGED_SCALE,
    r"(lint(@[\d.]+)? summary\.infos|check files\[\]\.counts\.info): \d+ -> \d+": _COUNTED,
    r'(normalize-recompute|migrate)(@[\d.]+)? stderr: ".*starts no program of MindSpeed-LLM whose arguments.*" -> .*': _FOLLOWED,
    r'migrate (exit code: 2 -> 1|output: \(nothing\) -> "\{")': _FOLLOWED,
    r"lint(@[\d.]+)? findings\[MST1(66|79)\] is new: .*deepseek4_flash.*": _FOLLOWED,
    r'lint(@[\d.]+)? (failed\[\]\.message|stderr): ".*does not look like a .*" -> ".*not checked: this is a .*"': _FSDP2,
    r'(normalize-recompute|migrate) stderr: ".*does not look like a .*" -> ".*this is a .*no layers to read"': _FSDP2,
    r"lint(@[\d.]+)? findings\[MST850\] is new: .*HCCL_OP_BASE_FFTS_MODE .*": "a documented variable is spelled alike",
}

NOTHING = "(nothing)"
_REFUSED = "ends at once with its usage"  # the reason for a program with an argument that its parser does not define
_TOLD_LINES = 20  # of standard error
_LABELS = (
    "id",
    "name",
)  # the first of these fields that a list item has names its kind, such as the check of a finding
_ABOUT = (*_LABELS, "key", "file", "program", "rank", "stage", "chunk", "layer", "line", "column", "message")
_MOST_ALIGNED = 2000  # longer lists are compared place by place
_REWRITTEN = "the texts were rewritten: other words, and no number that the old ones had not"
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_TRACE = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*")


class Answer(NamedTuple):
    """The answer of ms-tune to one command line."""

    code: int | str  # the exit code; a text if the command did not finish
    out: str  # its standard output
    told: str  # its standard error

    @property
    def trouble(self) -> str | None:
        """Return why there is no valid answer, in one line: an unexpected exception, a crash or a timeout; empty if there is one."""
        if isinstance(self.code, str):
            return self.code
        found = _TRACE.search(self.told)
        return None if found is None else self.told[found.end() :].split("\n", 1)[0]


class Difference(NamedTuple):
    """One difference between two answers."""

    kind: str  # the command and the place in its answer, without numbers of items
    old: object
    new: object

    @property
    def change(self) -> str:
        """Return the old and the new value as text."""
        return f"{_spelled(self.old)} -> {_spelled(self.new)}"

    @property
    def expected(self) -> str | None:
        """Return the reason why the difference is intended; None if it is not."""
        if _words(self.old, self.new):
            return _REWRITTEN
        line = f"{self.kind}: {self.change}"
        return next((reason for pattern, reason in EXPECTED.items() if re.fullmatch(pattern, line, re.DOTALL)), None)


def _words(old: object, new: object) -> bool:
    """Return whether two sentences differ in wording only: the new one has no number or quotation that the old one lacks."""
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) > 0 and all(
            one == other or _words(one, other) for one, other in zip(old, new, strict=True)
        )
    if not (isinstance(old, str) and isinstance(new, str) and " " in old and " " in new):
        return False
    return {*map(_rounded, _NUMBER.findall(new))} <= {*map(_rounded, _NUMBER.findall(old))}


def _rounded(number: str) -> str:
    return f"{float(number.replace(',', '')):.2g}"


def _spelled(value: object) -> str:
    return value if value is NOTHING else json.dumps(value, ensure_ascii=False)


def differences(command: str, old: Answer, new: Answer) -> Iterator[Difference]:
    """Yield all differences between two answers to the same command line."""
    if _REFUSED in old.out and _REFUSED not in new.out and "lint" not in command:
        yield Difference(f"{command} of a program", "refused by its parser", "taken")
        return
    if old.code != new.code:
        yield Difference(f"{command} exit code", old.code, new.code)
    if old.trouble != new.trouble:
        yield Difference(f"{command} trouble", old.trouble or NOTHING, new.trouble or NOTHING)
        return
    if old.out != new.out:
        before, after = _parsed(old.out), _parsed(new.out)
        if before is None or after is None:
            yield from _lines(f"{command} output", old.out, new.out)
        else:
            yield from _unlike(f"{command} ", _renamed(command.partition("@")[0], before), after)
    if old.told != new.told:
        yield from _lines(f"{command} stderr", *(_TRACE.sub("Traceback: ", one.told) for one in (old, new)))


def _parsed(text: str) -> object:
    """Return the parsed JSON object; None if the text is not one."""
    try:
        return json.loads(text) if text.startswith("{") else None
    except ValueError:
        return None


def _lines(kind: str, old: str, new: str) -> Iterator[Difference]:
    """Yield the first lines that differ."""
    before, after = (
        text.splitlines()[:_TOLD_LINES] if kind.endswith("stderr") else text.splitlines() for text in (old, new)
    )
    for number in range(max(len(before), len(after))):
        one, other = (lines[number] if number < len(lines) else NOTHING for lines in (before, after))
        if one != other:
            yield Difference(kind, one, other)
            return


def _renamed(place: str, value: object) -> object:
    """Return a value of the old version's JSON with the field names of the new version."""
    if isinstance(value, list):
        return [_renamed(place, item) for item in value]
    if not isinstance(value, dict):
        return value
    places = {field: f"{place}.{field}" for field in value}
    return {RENAMED.get(places[field], field): _renamed(places[field], inner) for field, inner in value.items()}


def _unlike(place: str, old: object, new: object) -> Iterator[Difference]:
    """Yield the differences between two JSON values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for field in old | new:
            inner = f"{place}{field}" if place.endswith(" ") else f"{place}.{field}"
            yield from _either(inner, old.get(field, NOTHING), new.get(field, NOTHING))
    elif isinstance(old, list) and isinstance(new, list) and any(isinstance(item, dict) for item in (*old, *new)):
        yield from _unlike_items(place, old, new)
    elif isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        yield from _lines(place, old, new)
    elif type(old) is not type(new) or old != new:
        yield Difference(place, old, new)


def _unlike_items(place: str, old: list[object], new: list[object]) -> Iterator[Difference]:
    before, after = ([_about(item) for item in items] for items in (old, new))
    if before != after and sorted(before) == sorted(after):
        yield Difference(f"{place} in another order", before, after)
        old, new = (sorted(items, key=_about) for items in (old, new))
    for one, other in _aligned(old, new):
        yield from _either(f"{place}[{_label(one if other is NOTHING else other)}]", one, other)


def _either(place: str, old: object, new: object) -> Iterator[Difference]:
    """Yield the differences between two values, where a value may be missing on either side."""
    if new is NOTHING:
        yield Difference(f"{place} is gone", old, new)
    elif old is NOTHING:
        yield Difference(f"{place} is new", old, new)
    else:
        yield from _unlike(place, old, new)


def _label(item: object) -> str:
    """Return the kind of an item; empty if it has no name."""
    found = next((item[name] for name in _LABELS if item.get(name)), "") if isinstance(item, dict) else ""
    return found if isinstance(found, str) else ""


def _aligned(old: list[object], new: list[object]) -> Iterator[tuple[object, object]]:
    """Pair the items that describe the same thing; ``NOTHING`` replaces an item that the other list lacks."""
    before, after = ([_about(item) for item in items] for items in (old, new))
    if before == after or max(len(old), len(new)) > _MOST_ALIGNED:
        yield from _padded(old, new)
        return
    for change, start, end, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if change == "equal":
            yield from zip(old[start:end], new[first:last], strict=True)
        else:
            yield from _by_label(old[start:end], new[first:last])


def _about(item: object) -> str:
    """Return a key for the subject of an item, unique among items of the same kind and place."""
    if not isinstance(item, dict):
        return json.dumps(item)
    return json.dumps([item.get(name) for name in _ABOUT])


def _by_label(old: list[object], new: list[object]) -> Iterator[tuple[object, object]]:
    """Pair items of the same kind by their order, if their place or text differs."""
    left = list(new)
    for item in old:
        other = next((one for one in left if _label(one) == _label(item)), NOTHING)
        if other is not NOTHING:
            left.remove(other)
        yield item, other
    yield from ((NOTHING, item) for item in left)


def _padded(old: list[object], new: list[object]) -> Iterable[tuple[object, object]]:
    length = max(len(old), len(new))
    return zip(*([*items, *[NOTHING] * (length - len(items))] for items in (old, new)), strict=True)
