"""Checks of a launch script itself: its shell commands and its launcher, before a program's parser runs.

Rules of bash are from its manual: unset variables, and words that consist of them, vanish (3.5.3); ``export`` affects
programs started later (4.1); a backslash continues a line (3.1.2.1). The launchers' options are those of
:mod:`ms_tune.facts.launchers`; argparse of CPython 3.10 to 3.14 accepts unambiguous prefixes of names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.megatron.arguments import ProgramArguments
from ms_tune.dialects.megatron.commands import FULL_SCRIPT, LaunchSource, read_command
from ms_tune.source.shell.read import RETURN, Launch
from ms_tune.source.shell.values import FROM_OUTSIDE, Argument, Reason

_SET = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)\+?=", re.MULTILINE)
_SPACED_ASSIGNMENT = re.compile(
    r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]+=|^[ \t]*([A-Za-z_]\w*)=[ \t]+[\w./]", re.MULTILINE
)
_OPTIONS = re.compile(r"^[ \t]*([A-Za-z_]\w*)=[\"(](?:\s|\\\n)*--\w", re.MULTILINE)
_EXPORT = re.compile(r"^[ \t]*export[ \t]+([A-Za-z_]\w*)=[^\n]*", re.MULTILINE)
_COMMENT = re.compile(r"(?m)^[ \t]*#.*$")
_GROUP = re.compile(r"(?:ARG|ARGS|ARGUMENTS|OPTS|OPTIONS)$")
_SIMILAR, _NEARLY = 0.7, 0.9  # similarity of names: an ending such as ARG for ARGS; a letter of a long one
_DIGITS = "0123456789"  # digits that distinguish numbered names
_LOCAL, _ALL = "local_worker_num", "worker_num"
_DOLLAR = re.compile(r"\$\{?([A-Za-z_]\w*)\}?=")
_BLANK = re.compile(r"([A-Za-z_]\w*)(?:[ \t]+=|=[ \t]+[\d\"'/$])")
_PRODUCT = re.compile(r"\$\([ \t]*\$?\{?\w+\}?[ \t]*[*][ \t]*\$?\{?\w+\}?[ \t]*\)(?!\))")
_SOURCES = re.compile(r"^[ \t]*(?:source|\.)[ \t]+\S[^\n]*", re.MULTILINE)
_ITSELF = re.compile(r"^[ \t]*(?:source|\.)[ \t]+\"?\$\{?(?:0|BASH_SOURCE)(?:\[0\])?\}?\"?[ \t]*$", re.MULTILINE)
_PORTS = 65535
_SPACED_EXPORT = re.compile(r"^[ \t]*export[ \t]+([A-Za-z_]\w*)[ \t]+=", re.MULTILINE)
_DOCUMENT = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1[^\n]*\n.*?^\t*\2$", re.MULTILINE | re.DOTALL)
_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def find_carriage_returns(context: CheckContext) -> Iterator[Violation]:
    """Report lines with Windows line endings."""
    source, _ = read_command(context)
    at = source.original.find(RETURN)
    if at >= 0:
        yield Violation((), span=source.script.span(max(at - 1, 0), at))


def find_unset_variables(context: CheckContext) -> Iterator[Violation]:
    """Report variables that are never set: the whole value of an option (``of`` is ``options``), or named like an argument group."""
    source, command = read_command(context)
    misspelt = {name for name, _, _, _ in _misspelt(source, command)}
    for name, word in _unknown(command):
        if name in misspelt or not word.open:
            continue
        option = _option_of(word, command)
        if option if context.options["of"] == "options" else not option and _GROUP.search(name):
            yield Violation((), params={"name": name, "option": option}, span=source.span_of(word))


def find_unknown_values(context: CheckContext) -> Iterator[Violation]:
    """Report numbers, choices and possible options that are only known at run time, which limits other checks."""
    source, command = read_command(context)
    found: dict[str, tuple[Argument, str]] = {}
    for one in command.items:
        value = next((word for word in one.values[: one.nargs] if word.text is None), None)
        sized = any(row.type in ("int", "float") or row.choices for row in one.definitions)
        if value is not None and sized and value.unknown is not None and value.unknown.reason is not Reason.ENVIRONMENT:
            mark = "$" if value.unknown.reason in (Reason.ARGUMENT, Reason.CONDITION, Reason.LOOP, Reason.INPUT) else ""
            found[one.name] = (value, mark + value.unknown.name)
    for word, _ in command.hidden:
        if word.unknown is not None and word.unknown.reason not in (Reason.ENVIRONMENT, Reason.ARGUMENT):
            found[word.unknown.name] = (word, "")
    if found:
        names = ", ".join(
            f"{name} ({why.splitlines()[0]})" if why.strip() else name for name, (_, why) in found.items()
        )
        yield Violation((), params={"names": names}, span=source.span_of(next(iter(found.values()))[0]))


def _option_of(word: Argument, command: ProgramArguments) -> str:
    if len(word.pieces) != 1:
        return ""
    launcher = (f"--{name}" for name, value in command.launch.options.items() if value is word)
    return next((one.name for one in command.items if one.nargs == 1 and one.values[:1] == (word,)), next(launcher, ""))


def find_misspelt_variables(context: CheckContext) -> Iterator[Violation]:
    """Report variables that are apparently misspelt.

    The script sets an unused one of a similar name or one of nearly the same name, or has a blank next to the ``=``.
    """
    source, command = read_command(context)
    for name, word, message, similar in _misspelt(source, command):
        yield Violation((), message, {"name": name, "similar": similar}, span=source.span_of(word))


def _misspelt(source: LaunchSource, command: ProgramArguments) -> Iterator[tuple[str, Argument, str, str]]:
    """Yield each variable with its word, the fault, and the name that was probably intended."""
    text = _blank_comments(source.script.text)
    names = list(dict.fromkeys(_SET.findall(text)))
    unused = [name for name in names if not _is_used(name, text)]
    apart = {name for pair in _SPACED_ASSIGNMENT.findall(text) for name in pair if name}
    for name, word in _unknown(command):
        if name in apart:
            yield name, word, "blank", ""
            continue
        like = [one for one in names if one[:2] == name[:2] and one.rstrip(_DIGITS) != name.rstrip(_DIGITS)]
        idle = [one for one in like if one in unused]
        cases = [one for one in names if one != name and one.lower() == name.lower()]
        similar = cases or get_close_matches(name, idle, 1, _SIMILAR) or get_close_matches(name, like, 1, _NEARLY)
        if similar:
            yield name, word, "default", similar[0]


def _blank_comments(text: str) -> str:
    return _COMMENT.sub(lambda match: " " * len(match[0]), text)


def _unknown(command: ProgramArguments) -> Iterator[tuple[str, Argument]]:
    """Yield each variable of unknown value once, with its word."""
    seen = set(FROM_OUTSIDE)
    options = (word for word in command.launch.options.values() if word is not None)
    for word in (*command.launch.arguments, *options):
        for piece in word.pieces:
            unknown = piece.unknown
            if unknown is None or unknown.reason is not Reason.ENVIRONMENT or not unknown.name.isidentifier():
                continue
            if unknown.name not in seen:
                seen.add(unknown.name)
                yield unknown.name, word


def _is_used(name: str, text: str) -> bool:
    return re.search(rf"\$\{{?[#!]?{name}\b|\bunset[^\n]*\b{name}\b|\[\[? -v {name}\b", text) is not None


def find_mistaken_commands(context: CheckContext) -> Iterator[Violation]:
    """Report commands that look like assignments: ``$TP=8``, ``TP =8``, ``TP= 8``, and ``$(A*B)`` for ``$((A*B))``."""
    source, command = read_command(context)
    text = _blank_comments(source.script.text)
    known = {name for name, _, message, _ in _misspelt(source, command) if message == "blank"}
    for one in source.launches.others:
        if one.place.file is not source.script:
            continue
        raw = text[one.place.start : one.place.end]
        match = _DOLLAR.match(raw) or _BLANK.match(raw)
        blank = match is not None and not raw.startswith("$")
        ahead = match is not None and match[0].endswith("=")  # a blank after the sign may be intended: NAME= command
        if match is None or match[1] in known or (blank and not ahead and not _is_used(match[1], text)):
            continue
        span = source.script.span(one.place.start, one.place.start + match.end(1))
        yield Violation((), "blank" if blank else "dollar", {"name": match[1]}, span=span)
    for match in _PRODUCT.finditer(text):
        yield Violation((), "product", {"name": match[0]}, span=source.script.span(*match.span()))


def find_unused_groups(context: CheckContext) -> Iterator[Violation]:
    """Report groups of options that are set but never used."""
    source, _ = read_command(context)
    text = _blank_comments(source.script.text)
    if source.launches.read_from or source.launches.unknown:
        return  # other files may use or change them
    for match in _OPTIONS.finditer(text):
        if not _is_used(match[1], text):
            yield Violation((), "default", {"name": match[1]}, span=source.script.span(match.start(1), match.end(1)))


def find_late_exports(context: CheckContext) -> Iterator[Violation]:
    """Report variables that are exported after the last program that the script starts."""
    source, _ = read_command(context)
    found = source.launches
    started = [*(one.place for one in found.launches), *(one.place for one in found.others)]
    ends = [place.end for place in started if place.file is found.file]
    if len(ends) < len(started) or found.read_from:
        return
    seen = {name for launch in found.launches for name in launch.environment}
    for match in _EXPORT.finditer(found.file.text, max(ends)):
        if match[1] not in seen:
            yield Violation((), "default", {"name": match[1]}, span=found.file.span(match.start(1), match.end(1)))


def find_endless_sourcing(context: CheckContext) -> Iterator[Violation]:
    """Report a script that sources itself, or files that source each other: bash recurses until memory runs out."""
    source, _ = read_command(context)
    text = source.script.text
    own = _ITSELF.search(text)
    if own or any(one.reason is Reason.BOUND and one.name for one in source.launches.unknown):
        match = own or _SOURCES.search(text)
        yield Violation((), span=source.script.span(*(match.span() if match else (0, 0))))


def find_spaced_exports(context: CheckContext) -> Iterator[Violation]:
    """Report ``export NAME = value``: bash reads three names, one of them invalid."""
    source, _ = read_command(context)
    text = _DOCUMENT.sub(_blanks, _COMMENT.sub(_blanks, source.script.text))
    for match in _SPACED_EXPORT.finditer(text):
        yield Violation((), "default", {"name": match[1]}, span=source.script.span(match.start(1), match.end(1)))


def find_cut_off_lines(context: CheckContext) -> Iterator[Violation]:
    """Report lines of options that bash runs as a separate command, because the previous line is not continued."""
    source, _ = read_command(context)
    for one in source.launches.others:
        text = one.words[0].text if one.words else None
        if text and text.startswith("--") and one.place.file is source.script:
            yield Violation((), "default", {"name": text.partition("=")[0]}, span=source.span_of(one.words[0]))


def find_unknown_launcher_options(context: CheckContext) -> Iterator[Violation]:
    """Report options that the launcher does not have, which stop it."""
    source, command = read_command(context)
    launch = command.launch
    for word, written, similar in launch.unknown_options() if launch.launcher.counts else ():
        span = source.span_of(word) if word is not None else None
        params = {"launcher": launch.launcher.name, "name": written, "similar": similar}
        yield Violation((), "similar" if similar else "default", params, span=span)


def find_bad_machine(context: CheckContext) -> Iterator[Violation]:
    """Report a node rank that is not below the number of nodes; ``msrun`` ignores it on a single node."""
    source, command = read_command(context)
    options, launcher = command.launch.options, command.launch.launcher
    word = options.get("node_rank")
    number = _read_number(word)
    machines = _machines(command.launch)
    if word is None or number is None or machines is None or number < machines:
        return
    if launcher.name != "msrun" or machines > 1:
        yield Violation((), "default", {"number": number, "machines": machines}, span=source.span_of(word))


def _machines(launch: Launch) -> int | None:
    options = launch.options
    if launch.launcher.name == "msrun":
        every, local = _read_number(options.get("worker_num")), _read_number(options.get("local_worker_num"))
        return every // local if every and local and every % local == 0 else None
    return _read_number(options.get("nnodes")) if launch.launcher.counts else None


def find_bad_port(context: CheckContext) -> Iterator[Violation]:
    """Report a port above 65535."""
    source, command = read_command(context)
    word = command.launch.options.get("master_port")
    number = _read_number(word)
    if word is not None and number is not None and number > _PORTS and command.launch.launcher.counts:
        yield Violation((), "default", {"number": number}, span=source.span_of(word))


def find_uneven_workers(context: CheckContext) -> Iterator[Violation]:
    """Report ``msrun`` process counts that are not a multiple of those of one machine."""
    source, command = read_command(context)
    options = command.launch.options
    if command.launch.launcher.name != "msrun" or not (_LOCAL in options and _ALL in options):
        return
    local, every = (_read_number(options[name]) for name in (_LOCAL, _ALL))
    word = options[_LOCAL]
    if word is not None and local and every and every % local:
        yield Violation((), "default", {"local": local, "every": every}, span=source.span_of(word))


def _blanks(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _read_number(word: Argument | None) -> int | None:
    text = word.text if word is not None else None
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else None  # noqa: PLR2004 - ports are shorter


def find_bad_launcher_counts(context: CheckContext) -> Iterator[Violation]:
    """Report launcher options that are not numbers or too small (``least``: option, minimum); ``words`` are accepted, too."""
    source, command = read_command(context)
    least = context.options["least"]
    words = context.names("words")
    launch = command.launch
    for name, low in least.items() if isinstance(least, dict) else ():
        word = launch.options.get(name)
        text = word.text if word is not None else None
        if word is None or text is None or text.startswith("--") or text in words or not launch.launcher.known:
            continue
        number = _read_whole(text, ranges=name == "nnodes")
        if launch.launcher.name == "msrun" and name == "node_rank":
            low = -1  # noqa: PLW2901 - the launcher's default
        if number is None or number < low:
            params = {"name": f"--{name}", "text": text, "least": low}
            yield Violation((), "default" if number is None else "least", params, span=source.span_of(word))


def _read_whole(text: str, *, ranges: bool) -> int | None:
    match = re.fullmatch(r"\s*(-?\d{1,9})(:\d{1,9})?\s*", text, re.ASCII)
    return int(match[1]) if match and (ranges or not match[2]) else None


def find_missing_connections(context: CheckContext) -> Iterator[Violation]:
    """Report a script that does not export ``CUDA_DEVICE_MAX_CONNECTIONS``, which TP with sequence parallelism requires."""
    source, command = read_command(context)
    tensor = command.integer("tensor_model_parallel_size")
    others = ("use_torch_fsdp2", "use_custom_fsdp")
    if len(command.items) < FULL_SCRIPT or _CONNECTIONS in command.launch.environment or source.launches.unknown:
        return
    sequence = command.value("sequence_parallel") is True
    if tensor and tensor > 1 and sequence and all(map(command.is_off, others)):
        own = re.search(rf"^[ \t]*{_CONNECTIONS}=", source.script.text, re.MULTILINE)
        exported = re.search(rf"\bexport\b[^\n]*\b{_CONNECTIONS}\b|\bset[ \t]+-\w*a", source.script.text)
        message = "own" if own and not exported else "default"
        yield Violation(("--sequence-parallel",), message, at_key=True)
