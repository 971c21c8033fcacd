"""Check how a script sets variables: values that the shell cuts off, that no program sees, or that the launcher changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import wraps

from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.facts.launchers import variables
from ms_tune.facts.megatron import programs
from ms_tune.job.script import ScriptJob
from ms_tune.lint.environment.settings import KEYS, MS_NAMES, EnvironmentSource
from ms_tune.source.shell.read import Launch
from ms_tune.source.shell.values import Argument, Reason

_CUT = re.compile(r"(?P<by>[ \t]*;[ \t]*|[ \t]+)(?P<lost>(?P<key>[A-Za-z_]\w*)[:=][^\s;&|]*)")
_PAIRS = re.compile(r"(?:^|[=,])[A-Za-z_]\w*:[^/\s][^\s]*$")  # key:value that is not a path
_ALL = re.compile(r"^[ \t]*set[ \t]+(?:-\w*a|-o[ \t]+allexport)", re.MULTILINE)  # everything set after this is exported
_SPACED = re.compile(
    r"^[ \t]*(export[ \t]+)?(?P<name>[A-Za-z_]\w*)(?:[ \t]+=|=[ \t]+(?=[\"'/\d.]))[^=~\n]*$", re.MULTILINE
)
_CONTINUED = re.compile(r"^[^#\n]*(?<!\\)(?P<end>\\[ \t]+)\n[ \t]*(?:--?\w|[\w./]+\.py\b)", re.MULTILINE)
_QUOTES = ("'", '"')
_UNSURE = ("depth", "brace")  # our reader's limit, and errors that bash only finds when it gets there
_DOCUMENT = re.compile(r"\$\([^)]*<<|`[^`]*<<")  # quotation marks in it are plain characters
_LAUNCHERS = ("msrun", "torchrun", "torch.distributed.launch")
_NEARLY = 0.9  # similarity of two names that differ in a letter
_WHOLE = re.compile(r"\s*[+-]?\d+(?:_\d+)*\s*", re.ASCII)  # text that Python's `int` accepts
_WORKERS, _LOCAL_WORKERS = "worker_num", "local_worker_num"
_BOUND = ("bind_core", "bind_numa")
_HIGHEST_PORT = 65535
_OF_LAUNCHERS = ("RANK_SIZE", "RANK_ID")  # scripts use these for themselves, too


def _of_scripts(
    look: Callable[[EnvironmentSource, ScriptJob], Iterator[Violation]],
) -> Callable[[CheckContext], Iterator[Violation]]:
    """Make a check that applies to scripts only; it receives the file and the script's launches."""

    @wraps(look)
    def check(context: CheckContext) -> Iterator[Violation]:
        source = context.source
        assert isinstance(source, EnvironmentSource)  # noqa: S101 - checks of the environment get no other source
        return iter(()) if source.script is None else look(source, source.script)

    return check


@_of_scripts
def cut(source: EnvironmentSource, _: ScriptJob) -> Iterator[Violation]:
    """Report settings after a space or a semicolon: the shell reads them as another word or command."""
    for one in source.environment.assignments:
        found = _CUT.match(source.text, one.span.end)
        if found is None or not _is_cut_off(one.name, source.text[one.span.start : one.span.end], found):
            continue
        params = {"lost": found["lost"], "by": ";" if ";" in found["by"] else "blank"}
        span = source.lines.span(found.start("lost"), found.end("lost"))
        yield Violation((one.name,), "semicolon" if ";" in found["by"] else "default", params, span=span)
    for spaced in _SPACED.finditer(source.text):
        name = spaced["name"]
        if name in variables() and (spaced[1] or spaced[0].rstrip().endswith(tuple("\"'" + "0123456789"))):
            span = source.lines.span(spaced.start("name"), spaced.end())
            yield Violation((), "spaced", {"name": name}, span=span)


def _is_cut_off(name: str, value: str, found: re.Match[str]) -> bool:
    """Return whether the text after a value belongs to it: a known key of the variable, or another ``key:value``."""
    if name in KEYS:
        return found["key"] in KEYS[name]
    return ";" not in found["by"] and found["lost"].startswith(f"{found['key']}:") and bool(_PAIRS.search(value))


@_of_scripts
def unexported(source: EnvironmentSource, script: ScriptJob) -> Iterator[Violation]:
    """Report variables of MindSpore that are set but not exported: no program started by the script sees them."""
    names = {
        one.name: one
        for one in source.environment.assignments
        if one.name in MS_NAMES and one.name not in _OF_LAUNCHERS
    }
    if not names or _ALL.search(source.text):
        return
    found = script.launches
    if not found.launches or found.unknown or found.problems:
        return
    seen = {name for launch in found.launches for name in launch.environment}
    for name, one in names.items():
        if name not in seen and not re.search(rf"\$\{{?{name}\b|export[^\n]*\b{name}\b", source.text):
            yield Violation((name,), span=one.key)


@_of_scripts
def unreadable(source: EnvironmentSource, script: ScriptJob) -> Iterator[Violation]:
    """Report an unclosed quotation mark or an unexpected word, at which bash stops only when it gets there."""
    for problem in script.launches.problems:
        quote = problem.reason in _QUOTES
        if problem.reason in _UNSURE or ((quote or problem.reason == "(") and _DOCUMENT.search(source.text)):
            continue
        end = source.text.find("\n", problem.offset)
        span = source.lines.span(problem.offset, end if end >= 0 else len(source.text))
        yield Violation((), "quote" if quote else "default", {}, span=span)
    for found in _CONTINUED.finditer(source.text):
        yield Violation((), "blank", {}, span=source.lines.span(found.start("end"), found.end("end")))


@_of_scripts
def not_followed(source: EnvironmentSource, script: ScriptJob) -> Iterator[Violation]:
    """Report launches or settings that are only known at run time and therefore not checked."""
    seen = set[int]()
    for one in script.launches.unknown:
        if one.place.file.path != source.path or one.place.start in seen:
            continue
        seen.add(one.place.start)
        kind = "bound" if one.reason is Reason.BOUND else "file" if one.reason is Reason.FILE else "default"
        yield Violation((), kind, {"name": one.name}, span=source.lines.span(one.place.start, one.place.end))


@_of_scripts
def program_unknown(source: EnvironmentSource, script: ScriptJob) -> Iterator[Violation]:
    """Report a wrong program of a launcher: all options as one word, an option without dashes, or a misspelt name."""
    known = sorted(programs())
    for launch in script.launches.launches:
        word, text = launch.program, launch.program.text if launch.program is not None else None
        if word is None or text is None or launch.launcher.name not in _LAUNCHERS:
            continue
        if word.place.file.path != source.path:
            continue
        name = text.rpartition("/")[2]
        span = source.lines.span(word.place.start, word.place.end)
        similar = [one for one in known if _letters(one) == _letters(name)]
        similar = similar or get_close_matches(name, known, 1, _NEARLY)
        places = (folder / text for folder in source.path.absolute().parents)
        if text.lstrip().startswith("--"):
            yield Violation((), "quoted", {"launcher": launch.launcher.name}, span=span)
        elif text.startswith("#"):
            yield Violation((), "comment", {"launcher": launch.launcher.name}, span=span)
        elif name.replace("-", "_") in launch.launcher.values:
            yield Violation((), "option", {"launcher": launch.launcher.name, "name": name}, span=span)
        elif name not in known and similar and not any(path.is_file() for path in places):
            yield Violation((), "similar", {"name": name, "similar": similar[0]}, span=span)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.removesuffix(".py").removesuffix("_py"))


@_of_scripts
def simulated(source: EnvironmentSource, script: ScriptJob) -> Iterator[Violation]:
    """Report ``msrun --sim_level``, with which nothing is trained."""
    for launch in script.launches.launches if "sim_level" in source.text else ():
        level = launch.options.get("sim_level") if launch.launcher.name == "msrun" else None
        if level is not None and level.text not in (None, "", "-1") and level.place.file.path == source.path:
            span = source.lines.span(level.place.start, level.place.end)
            yield Violation((), params={"level": level.text}, span=span)


@_of_scripts
def rank_table(source: EnvironmentSource, script: ScriptJob) -> Iterator[Violation]:
    """Report a rank table for ``msrun``, which builds the cluster itself."""
    started = any(one.launcher.name == "msrun" for one in script.launches.launches)
    for one in source.environment.assignments if started else ():
        if one.name == "RANK_TABLE_FILE" and one.value:
            yield Violation((one.name,), span=one.key)


@_of_scripts
def refused_by_launcher(source: EnvironmentSource, script: ScriptJob) -> Iterator[Violation]:
    """Report unknown options of ``msrun`` and ``torchrun``, and values that ``msrun`` refuses.

    Programs of Megatron-LM are left to the checks of their own dialect.
    """
    for launch in script.launches.launches:
        if launch.launcher.name not in _LAUNCHERS or launch.name in programs() or launch.place.file.path != source.path:
            continue
        unknown: list[tuple[Argument | None, str, dict[str, object]]] = [
            (word, "similar" if similar else "default", {"name": written, "similar": similar})
            for word, written, similar in launch.unknown_options()
        ]
        for word, message, params in (*unknown, *_values(launch)):
            place = word.place if word is not None and word.place.file.path == source.path else launch.place
            named = {"launcher": launch.launcher.name, **params}
            yield Violation((), message, named, span=source.lines.span(place.start, place.end))


def _values(launch: Launch) -> Iterator[tuple[Argument | None, str, dict[str, object]]]:
    """Yield values that ``msrun`` refuses (``parallel/cluster/run.py``, ``process_entity/_api.py``, MindSpore 2.9)."""
    for written, word in launch.options.items():
        name, text = launch.find_option(written), word.text if word is not None else None
        if text is None or name is None:
            continue
        choices = launch.launcher.choices.get(name)
        if name in launch.launcher.whole and not _WHOLE.fullmatch(text):
            yield word, "number", {"name": f"--{name}", "text": text}
        elif choices and text.strip() not in choices:
            yield word, "choice", {"name": f"--{name}", "text": text, "choices": ", ".join(choices)}
        elif name in _BOUND and text not in ("True", "False") and "{" not in text and not text.endswith(".json"):
            yield word, "choice", {"name": f"--{name}", "text": text, "choices": "True, False, {...}"}
    if launch.launcher.name == "msrun":
        yield from _numbers(launch)


def _numbers(launch: Launch) -> Iterator[tuple[Argument | None, str, dict[str, object]]]:
    """Yield numbers of ``msrun`` that no cluster can have."""
    every, local = (_number(launch, name) for name in (_WORKERS, _LOCAL_WORKERS))
    if every is not None and every < 1:
        yield launch.options[_WORKERS], "none", {"name": f"--{_WORKERS}", "text": every}
    elif every is not None and local is not None and local > every:
        word = launch.options.get(_LOCAL_WORKERS) or launch.options.get(_WORKERS)
        yield word, "more", {"local": local, "every": every}
    port, machine = (_number(launch, name) for name in ("master_port", "node_rank"))
    if port is not None and not 0 < port <= _HIGHEST_PORT:
        yield launch.options["master_port"], "port", {"text": port}
    if machine is not None and every and local and 0 < every <= machine * local:
        yield launch.options["node_rank"], "machine", {"text": machine, "machines": -(-every // local)}


def _number(launch: Launch, name: str) -> int | None:
    """Return the number given to ``msrun``, or its default; None if it is only known at run time."""
    if name not in launch.options:
        return int(launch.launcher.values[name] or 0)
    word = launch.options[name]
    text = word.text if word is not None else None
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None
