"""What a check that needs code is given, what it answers, and how that is fixed."""

from __future__ import annotations

from abc import abstractmethod
from types import MappingProxyType

from ms_tune.enums import Dialect
from ms_tune.errors import MsTuneError
from ms_tune.facts.keys import mindspore_values, registered
from ms_tune.facts.models import UNKNOWN, is_legacy
from ms_tune.records import Record
from ms_tune.source.yaml import MISSING, SourceFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeVar

    from ms_tune.diagnostics import Fix, KeyPath, Location
    from ms_tune.dialects import JobView, LayerPlan
    from ms_tune.enums import ChangeKind
    from ms_tune.facts.models import ModelConfig
    from ms_tune.source.edit import ValueChange

    T = TypeVar("T")


class CheckContext:
    """One config in front of one check.

    Args:
        job: The config's job; of the file alone, or with what it takes from its bases, as the check asks.
        options: What the checklist passes to the check's function.
        refused: Whether a check of any other module finds an error in this config, or one of those with these ids something.
    """

    def __init__(self, job: JobView, options: Mapping[str, Any], refused: Callable[..., bool] = bool) -> None:
        self.job, self.options, self.refused = job, options, refused
        self.source, self.dialect, self.version = job.source, job.dialect, job.release.version

    @property
    def model(self) -> ModelConfig:
        """The model, with what the framework's class makes of its settings, left out or not."""
        return self.job.model

    @property
    def plan(self) -> LayerPlan | None:
        """The plan, or None if the config does not tell all of it."""
        try:
            return self.job.plan
        except MsTuneError:
            return None

    def value(self, name: str) -> Any:  # noqa: ANN401, PLR0911 - settings are of all types; one a kind of name
        """What a name in a checklist's expression stands for; :data:`UNKNOWN` if nobody can say.

        ``network.x`` is a field of the network as the framework's class fills it in, ``degree.x`` in how many ways something is
        split, ``argument.x`` what the program that a script starts has in the end for an argument, ``launch.processes`` and
        ``launch.environment.x`` how it is started, ``file.option.x`` what a file has that it is given (``file.option`` is its name), ``framework.release`` the release as a number, ``framework.legacy`` whether a legacy network is built, ``framework.model`` its ``model_type``, ``plan.passes`` whether the framework gets through to the layers, ``registered.x`` the names of a kind that the release
        takes, ``mindspore.x`` the values that it does. ``written.x`` is whether a key or an argument is there at all, ``raw.x`` its value
        even if it is null; everything else is a key path, and a null counts as missing.
        """
        room, _, rest = name.partition(".")
        if room == "network":
            return self.model.value(rest)
        if room == "degree":
            return self.job.part("read").parallel_degree(self.job, rest)
        if room in ("argument", "launch", "file"):
            return self.source.look_up(name)[0] if isinstance(self.source, CodeSource) else UNKNOWN
        if room == "framework":
            return {"release": float(self.version), "legacy": is_legacy(self.source.data), "model": self.model.kind}[
                rest
            ]
        if room == "written":
            if rest.startswith(("argument.", "network.")):
                return self.place_of(rest) is not None
            return self.source.get(tuple(rest.split(".")), MISSING) is not MISSING
        if room == "raw":
            return self.source.get(tuple(rest.split(".")), UNKNOWN)
        if room == "plan":
            return UNKNOWN if self.plan is None else self.plan.failure is None
        if room == "registered":
            return sorted(registered(rest, self.version, self.dialect))
        return mindspore_values(rest) if room == "mindspore" else self.get(name, UNKNOWN)

    def place_of(self, name: str) -> KeyPath | None:
        """Where what a name in an expression stands for is written; None if nowhere."""
        room, _, rest = name.partition(".")
        if room == "network":
            return next((field.path for field in self.model.written(rest) if field.path), None)
        if room == "argument":
            return self.source.look_up(name)[1] if isinstance(self.source, CodeSource) else None
        return None if self.get(name) is None else tuple(name.split("."))

    @property
    def section(self) -> KeyPath:
        """The section of the model."""
        return ("model",) if self.dialect is Dialect.MINDFORMERS_PYNATIVE else ("model", "model_config")

    def get(self, dotted: str, default: object = None) -> object:
        """The value at ``a.b.c``; a null counts as missing, as it does for the frameworks."""
        value = self.source.get(tuple(dotted.split(".")), MISSING)
        return default if value is MISSING or value is None else value

    def integer(self, dotted: str, default: int | None = None) -> int | None:
        """The whole number at ``a.b.c``; the default if there is none or it is something else."""
        value = self.get(dotted)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def mapping(self, dotted: str) -> Mapping[object, object]:
        """The mapping at ``a.b.c``, or an empty one."""
        value = self.get(dotted)
        return value if isinstance(value, dict) else {}

    def names(self, option: str) -> frozenset[str]:
        """An option that is a list of names; none where it is not given."""
        value = self.options.get(option, [])
        if not isinstance(value, list):
            raise TypeError(option)
        return frozenset(map(str, value))


class Violation(Record):
    """A check's answer: not this.

    Args:
        path: The key path at fault.
        message: Which of the check's messages says so.
        params: The message's parameters, beside ``key``, ``path`` and ``value``.
        at_key: Whether to point at the key; else at the value.
        span: The place, if it is not where ``path`` stands.
        related: Other key paths that matter, each with the message that says why.
        related_spans: The same for places without a path of their own.
        changes: How to fix it, if the check itself knows; else the checklist's ``fix`` counts.
        safe: Whether ``changes`` surely keep what the author wanted.
    """

    path: KeyPath
    message: str = "default"
    params: Mapping[str, object] = MappingProxyType({})
    at_key: bool = False
    span: Location | None = None
    related: tuple[tuple[KeyPath, str], ...] = ()
    related_spans: tuple[tuple[Location, str], ...] = ()
    changes: tuple[ValueChange, ...] = ()
    safe: bool = False


def parse_path(path: object) -> list[str | int]:
    """A key path, or a pattern of one, from ``a.b.*`` or ``[a, b, "*"]``."""
    return path if isinstance(path, list) else [*str(path).split(".")]


class FixRule(Record):
    """How findings of a check are fixed."""

    kind: ChangeKind | None  # what is done; nothing for a rewrite or a move
    path: KeyPath | None  # where, if it is not the finding's own key path
    value: Any  # The new value or key. In a text, `{name}` stands for a parameter of the finding.
    spelled: bool  # whether `value` is the new value as YAML spells it (`set-text`)
    safe: bool  # whether the meaning of the config surely stays what its author wanted
    messages: frozenset[str]  # the messages of the check that it is for; empty for all
    rewrite: str | None = None  # the name of the function that fixes code or a setting of the environment
    sections: Mapping[str, KeyPath] = MappingProxyType({})  # the section that a key belongs into, by the key


class CodeSource(SourceFile):
    """A file that is no YAML: it knows how its text is edited, and how an edit is proved to do nothing else."""

    is_code = True

    @abstractmethod
    def again(self, text: str) -> CodeSource:
        """The same file with another text.

        Raises:
            ConfigError: The text cannot be read as what the file is.
        """

    @abstractmethod
    def fix(self, rule: FixRule, violation: Violation) -> Fix:
        """How a violation is fixed, not yet proved.

        Raises:
            EditRefusedError: The place is not of a form that can be edited safely.
        """

    @abstractmethod
    def proves(self, fixes: Sequence[Fix]) -> bool:
        """Whether the text can be read with all these fixes made, and then means what they say and nothing else."""

    @abstractmethod
    def quoted(self) -> list[tuple[int, int]]:
        """Where values stand in which a ``#`` starts no comment."""

    def look_up(self, name: str) -> tuple[object, KeyPath | None]:  # noqa: ARG002 - only programs have some
        """What a program is started with (``argument.x``, ``launch.x``, ``file.x``), and where it is written: nobody can say, and nowhere."""
        return UNKNOWN, None


def per_job(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """Keep what a function makes of a job with the job: several checks ask for the same, one after the other."""
    key = f"{function.__module__}.{function.__qualname__}"

    def kept(job: Any) -> T:  # noqa: ANN401 - a job, or a view of one
        known: dict[str, T] = vars(job)
        if key not in known:
            known[key] = function(job)
        return known[key]

    return kept
