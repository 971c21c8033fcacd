"""What a launcher was told, and its program's arguments: options with the words that follow each."""

from __future__ import annotations

import re
from argparse import REMAINDER, ArgumentParser
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, NoReturn

from ms_tune.dialects.job_parts import SettingChange
from ms_tune.errors import UsageError
from ms_tune.facts.query import load
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Mapping, Sequence

_OPTION = re.compile(r"--?[A-Za-z]")  # and no negative number


class OptionWords:
    """The arguments of a program, and what was changed in them.

    An option's words are all that stand behind it up to the next option: ``--load my checkpoint`` is one option with two
    words, as a shell makes it of an unquoted path with a blank.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        # Options with their words, in their order; the first part has no option.
        self.parts: list[tuple[str, list[str]]] = [("", [])]
        self.changes: list[SettingChange] = []  # texts of words; None where the option is not there
        for word in arguments:
            if _OPTION.match(word):
                name, equals, value = word.partition("=")
                self.parts.append((name, [value] if equals else []))
            else:
                self.parts[-1][1].append(word)

    def __contains__(self, option: object) -> bool:
        return any(name == option for name, _ in self.parts)

    def get(self, option: str) -> list[str] | None:
        """The words of an option, where it stands last; None if it is absent."""
        return next((words for name, words in reversed(self.parts) if name == option), None)

    def number(self, option: str) -> int | None:
        """The option's only word as a positive number; None if it is none."""
        words = self.get(option)
        if words is None or len(words) != 1 or not words[0].isdecimal():
            return None
        return int(words[0]) or None

    def put(self, option: str, *words: str) -> None:
        """Give an option these words, once."""
        if self.get(option) != list(words):
            self._change(option, list(words))

    def drop(self, options: Iterable[str]) -> None:
        """Take options out."""
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
        """All of them, as a program takes them."""
        return tuple(word for name, words in self.parts for word in ([name] if name else []) + words)


@dataclass(frozen=True, slots=True)
class ProgramSplit:
    """How a program's own arguments split its job; 1 for what they leave out."""

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1  # over how many ranks the experts are; these are ranks of the other dimensions
    # Ranks are numbered tensor, context, pipeline, data, and not with the pipeline last.
    pipeline_before_data: bool = False


@dataclass(frozen=True, slots=True)
class SimulatedRank:
    """A rank that is simulated, and its stage; None where stages are not what it was chosen by."""

    rank: int
    stage: int | None


def parallel_of(arguments: Sequence[str]) -> ProgramSplit | None:
    """The split that Megatron's arguments name, the last one of each winning; None if they name no pipeline."""
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
    """The lowest rank of a stage.

    Megatron's order is tensor, context, expert, data, pipeline, so that a stage's ranks are neighbours; with
    ``--use-tp-pp-dp-mapping`` the data dimension is the last one (Megatron-LM core_v0.12.1,
    ``megatron/core/parallel_state.py``, ``initialize_model_parallel``).
    """
    if parallel.pipeline_before_data:
        return stage * parallel.tensor * parallel.context
    return stage * (world // parallel.pipeline)


def choose_ranks(
    world: int, parallel: ProgramSplit | None, stages: Sequence[int] | None = None, ranks: Sequence[int] = ()
) -> tuple[SimulatedRank, ...]:
    """The ranks to simulate, each once."""
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
_PYTHONS = ("python", "pytest", "python3")  # msrun runs these as they are (parallel/cluster/process_entity/_utils.py)
_PYTHON = ".py"
_MOST = 1_000_000  # ranks of a job


@dataclass(frozen=True, slots=True)
class LauncherCall:
    """A job as its launcher was told to start it."""

    launcher: str  # one of `LAUNCHERS`
    world: int  # ranks of the job, on all its nodes
    local: int  # ranks of a node
    waits: bool  # the launcher waits for its ranks, shows what they print, and fails where one of them does
    master: tuple[str, str]  # address and port at which the ranks would meet
    # What is put before the program: an interpreter's name and options; empty where the program runs by itself.
    prefix: tuple[str, ...]
    program: str  # the program that every rank runs
    arguments: tuple[str, ...]  # the program's own arguments
    names_local_rank: bool = False  # every rank gets `--local-rank` as an argument, too
    changes: tuple[SettingChange, ...] = ()  # what of its own options was read otherwise than the launcher would


class _OptionParser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(msg("launch.own-words", words=message))


def parse_launcher(
    launcher: str, words: Sequence[str], environment: Mapping[str, str], devices: int | None = None
) -> LauncherCall:
    """Read a launcher's command line."""
    parser = _make_parser(launcher, environment if launcher != MSRUN else {})
    found = parser.parse_args(list(words))
    changes: tuple[SettingChange, ...] = ()
    if not found.program.endswith(_PYTHON) and not Path(found.program).exists() and not which(found.program):
        kept, changes = _without_sentences(words)
        try:
            found = parser.parse_args(kept) if changes else found
        except UsageError:  # they are none: the options belong to a program that is no Python file
            changes = ()
    launch = (_of_msrun if launcher == MSRUN else _of_torch)(launcher, found, devices)
    return replace(launch, changes=changes)


def _without_sentences(words: Sequence[str]) -> tuple[list[str], tuple[SettingChange, ...]]:
    # The words with one for each option where several stand, as a shell makes them of ``--master_addr your master node ip``.
    # Vendors' scripts have such sentences to be replaced; the launcher would take their second word for the program.
    end = next((at for at, word in enumerate(words) if word.endswith(_PYTHON)), 0)
    head = OptionWords(words[:end])
    changes = tuple(
        SettingChange(name, " ".join(told), told[0])
        for name, told in head.parts
        if name.startswith("-") and len(told) > 1
    )
    kept = [word for name, told in head.parts for word in ([name] if name else []) + told[:1]]
    return [*kept, *words[end:]], changes


def _make_parser(launcher: str, environment: Mapping[str, str]) -> ArgumentParser:
    parser = _OptionParser(prog=launcher, add_help=False)
    for option in load("launchers")["launchers"][launcher]["options"]:
        long = next(name for name in option["names"] if name.startswith("--"))
        told = environment.get(f"PET_{long.lstrip('-').replace('-', '_').upper()}")
        if option.get("flag"):
            parser.add_argument(*option["names"], action="store_true", default=told == "1")
        else:
            parser.add_argument(*option["names"], default=option.get("default") if told is None else told)
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
    # PyTorch's ``torch/distributed/run.py``, and ``launch.py`` where it differs.
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
