"""Parse launchers' command lines and their programs' arguments: options with the words that follow each."""

from __future__ import annotations

import re
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from typing import NoReturn

from ms_tune.dialects.job_parts import SettingChange
from ms_tune.errors import UsageError
from ms_tune.facts.query import load
from ms_tune.text import msg

_OPTION = re.compile(r"--?[A-Za-z]")  # not a negative number


class OptionWords:
    """The arguments of a program, and the changes made to them.

    An option's words are all words after it up to the next option: ``--load my checkpoint`` is one option with two words, as a
    shell splits an unquoted path with a space.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        # Options with their words, in order; the first part has no option.
        self.parts: list[tuple[str, list[str]]] = [("", [])]
        self.changes: list[SettingChange] = []  # values as text; None if the option is absent
        for word in arguments:
            if _OPTION.match(word):
                name, equals, value = word.partition("=")
                self.parts.append((name, [value] if equals else []))
            else:
                self.parts[-1][1].append(word)

    def __contains__(self, option: object) -> bool:
        return any(name == option for name, _ in self.parts)

    def get(self, option: str) -> list[str] | None:
        """Return the words of an option at its last position; None if it is absent."""
        return next((words for name, words in reversed(self.parts) if name == option), None)

    def number(self, option: str) -> int | None:
        """Return the option's only word as a positive number; None if it is not one."""
        words = self.get(option)
        if words is None or len(words) != 1 or not words[0].isdecimal():
            return None
        return int(words[0]) or None

    def put(self, option: str, *words: str) -> None:
        """Set an option to these words, once."""
        if self.get(option) != list(words):
            self._change(option, list(words))

    def drop(self, options: Iterable[str]) -> None:
        """Remove options."""
        for option in options:
            if option in self:
                self._change(option, None)

    def _change(self, option: str, words: list[str] | None) -> None:
        before, after = (None if one is None else " ".join(one) for one in (self.get(option), words))
        self.changes.append(SettingChange(option, before, after))
        self.parts = [part for part in self.parts if part[0] != option]
        if words is not None:
            self.parts.append((option, words))

    def arguments(self) -> tuple[str, ...]:
        """Return all arguments as a program accepts them."""
        return tuple(word for name, words in self.parts for word in ([name] if name else []) + words)


@dataclass(frozen=True, slots=True)
class ProgramSplit:
    """The parallel split of a job by its program's own arguments; 1 for omitted ones."""

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1  # number of ranks that share the experts; these are ranks of the other dimensions
    # Ranks are numbered tensor, context, pipeline, data, instead of with the pipeline last.
    pipeline_before_data: bool = False


@dataclass(frozen=True, slots=True)
class SimulatedRank:
    """A rank to simulate, and its stage; None if it was not chosen by its stage."""

    rank: int
    stage: int | None


def parallel_of(arguments: Sequence[str]) -> ProgramSplit | None:
    """Return the split in Megatron's arguments, where the last occurrence wins; None without a pipeline size."""
    names, words = load("launchers")["parallel"], OptionWords(arguments)
    tensor, pipeline, context, expert = (
        words.number(names[name]) for name in ("tensor", "pipeline", "context", "expert")
    )
    if pipeline is None:
        return None
    return ProgramSplit(
        tensor or 1,
        pipeline,
        context or 1,
        expert or 1,
        pipeline_before_data=names["pipeline_before_data"] in arguments,
    )


def first_rank(stage: int, world: int, parallel: ProgramSplit) -> int:
    """Return the lowest rank of a stage.

    Megatron's order is tensor, context, expert, data, pipeline, so that a stage's ranks are consecutive; with
    ``--use-tp-pp-dp-mapping`` the data dimension is the last one (Megatron-LM core_v0.12.1,
    ``megatron/core/parallel_state.py``, ``initialize_model_parallel``).
    """
    if parallel.pipeline_before_data:
        return stage * parallel.tensor * parallel.context
    return stage * (world // parallel.pipeline)


def choose_ranks(
    world: int, parallel: ProgramSplit | None, stages: Sequence[int] | None = None, ranks: Sequence[int] = ()
) -> tuple[SimulatedRank, ...]:
    """Return the ranks to simulate, each once."""
    if ranks:
        beyond = next((rank for rank in ranks if rank >= world), None)
        if beyond is not None:
            raise UsageError(msg("launch.beyond.rank", number=beyond, count=world))
        return tuple(SimulatedRank(rank, None) for rank in dict.fromkeys(ranks))
    if parallel is None or parallel.pipeline > world:
        parallel = ProgramSplit()
    wanted = range(parallel.pipeline) if stages is None else dict.fromkeys(stages)
    beyond = next((stage for stage in wanted if stage >= parallel.pipeline), None)
    if beyond is not None:
        raise UsageError(msg("launch.beyond.stage", number=beyond, count=parallel.pipeline))
    return tuple(SimulatedRank(first_rank(stage, world, parallel), stage) for stage in wanted)


MSRUN, TORCHRUN, TORCH_LAUNCH = "msrun", "torchrun", "torch.distributed.launch"
LAUNCHERS = (MSRUN, TORCHRUN, TORCH_LAUNCH)
_PYTHONS = ("python", "pytest", "python3")  # msrun runs these directly (parallel/cluster/process_entity/_utils.py)
_PYTHON = ".py"
_MOST = 1_000_000  # maximum ranks of a job


@dataclass(frozen=True, slots=True)
class LauncherCall:
    """A job as described by its launcher's command line."""

    launcher: str  # one of `LAUNCHERS`
    world: int  # ranks of the job on all its nodes
    local: int  # ranks per node
    waits: bool  # the launcher waits for its ranks, prints their output, and fails if one of them fails
    master: tuple[str, str]  # address and port where the ranks would connect
    # Words before the program: an interpreter's name and options; empty if the program is run directly.
    prefix: tuple[str, ...]
    program: str  # the program that every rank runs
    arguments: tuple[str, ...]  # the program's own arguments
    names_local_rank: bool = False  # every rank also gets the argument `--local-rank`
    changes: tuple[SettingChange, ...] = ()  # options of the launcher that were interpreted differently


class _OptionParser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(msg("launch.own-words", words=message))


def parse_launcher(
    launcher: str, words: Sequence[str], environment: Mapping[str, str], devices: int | None = None
) -> LauncherCall:
    """Parse a launcher's command line."""
    parser = _make_parser(launcher, environment if launcher != MSRUN else {})
    found = parser.parse_args(list(words))
    changes: tuple[SettingChange, ...] = ()
    if not found.program.endswith(_PYTHON) and not Path(found.program).exists() and not which(found.program):
        kept, changes = _without_sentences(words)
        try:
            found = parser.parse_args(kept) if changes else found
        except UsageError:  # none of them: the options belong to a program that is not a Python file
            changes = ()
    launch = (_of_msrun if launcher == MSRUN else _of_torch)(launcher, found, devices)
    return replace(launch, changes=changes)


def _without_sentences(words: Sequence[str]) -> tuple[list[str], tuple[SettingChange, ...]]:
    # Reduce options with several words to one word, as a shell makes them of ``--master_addr your master node ip``. Vendors'
    # scripts contain such placeholders; the launcher would take their second word as the program.
    end = next((at for at, word in enumerate(words) if word.endswith(_PYTHON)), 0)
    head = OptionWords(words[:end])
    changes = tuple(
        SettingChange(name, " ".join(values), values[0])
        for name, values in head.parts
        if name.startswith("-") and len(values) > 1
    )
    kept = [word for name, values in head.parts for word in ([name] if name else []) + values[:1]]
    return [*kept, *words[end:]], changes


def _make_parser(launcher: str, environment: Mapping[str, str]) -> ArgumentParser:
    parser = _OptionParser(prog=launcher, add_help=False)
    for option in load("launchers")["launchers"][launcher]["options"]:
        long = next(name for name in option["names"] if name.startswith("--"))
        value = environment.get(f"PET_{long.lstrip('-').replace('-', '_').upper()}")
        if option.get("flag"):
            parser.add_argument(*option["names"], action="store_true", default=value == "1")
        else:
            parser.add_argument(*option["names"], default=option.get("default") if value is None else value)
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=REMAINDER)
    return parser


def _of_msrun(launcher: str, found: Namespace, devices: int | None) -> LauncherCall:
    # MindSpore's ``parallel/cluster/run.py`` and ``process_entity/_api.py``.
    world = devices or _parse_number("--worker_num", found.worker_num)
    local = min(_parse_number("--local_worker_num", found.local_worker_num), world)
    if found.join not in {"True", "False"}:
        raise UsageError(msg("launch.number", option="--join", value=found.join, wanted="True, False"))
    return LauncherCall(
        launcher=launcher,
        world=world,
        local=local,
        waits=found.join == "True",
        master=(found.master_addr, found.master_port),
        prefix=() if found.program in _PYTHONS else ("python",),
        program=found.program,
        arguments=tuple(found.arguments),
    )


def _of_torch(launcher: str, found: Namespace, devices: int | None) -> LauncherCall:
    # PyTorch's ``torch/distributed/run.py``, and ``launch.py`` for the differences.
    nodes = _parse_number("--nnodes", found.nnodes.rpartition(":")[2])
    local = _each_node(found.nproc_per_node, devices, nodes)
    bare, module = found.no_python, found.module
    if bare and module:
        raise UsageError(msg("launch.module"))
    return LauncherCall(
        launcher=launcher,
        world=devices or nodes * local,
        local=local,
        waits=True,
        master=(found.master_addr, found.master_port),
        prefix=() if bare else ("python", "-u", *(["-m"] if module else [])),
        program=found.program,
        arguments=tuple(found.arguments),
        names_local_rank=launcher == TORCH_LAUNCH and not found.use_env,
    )


def _each_node(text: str, devices: int | None, nodes: int) -> int:
    if text.isdecimal():
        local = _parse_number("--nproc-per-node", text)
        return min(local, devices) if devices else local
    if devices:
        return max(1, devices // nodes)
    raise UsageError(msg("launch.each-node", value=text), msg("launch.each-node.hint"))


def _parse_number(option: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 0 < number <= _MOST:
        raise UsageError(msg("launch.number", option=option, value=text, wanted=f"1 ... {_MOST}"))
    return number
