"""Inputs and results of checks that are written in Python, and how their findings are fixed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ms_tune.diagnostics import Fix, KeyPath, Location
from ms_tune.enums import ChangeKind, Dialect
from ms_tune.errors import MsTuneError
from ms_tune.facts.keys import mindspore_values, registered
from ms_tune.facts.models import UNKNOWN, ModelConfig, is_legacy
from ms_tune.records import Any, Record
from ms_tune.source.yaml import MISSING, SourceFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from ms_tune.dialects import JobView, LayerPlan
    from ms_tune.source.edit import ValueChange

    T = TypeVar("T")


class CheckContext:
    """The config that a check examines.

    ``refused`` returns whether checks of other modules found an error, or, with IDs as arguments, whether those checks found anything.
    """

    def __init__(self, job: JobView, options: Mapping[str, Any], refused: Callable[..., bool] = bool) -> None:
        self.job, self.options, self.refused = job, options, refused
        self.source, self.dialect, self.version = job.source, job.dialect, job.release.version

    @property
    def model(self) -> ModelConfig:
        """Return the model, with defaults filled in as the framework's class does."""
        return self.job.model

    @property
    def plan(self) -> LayerPlan | None:
        """Return the plan, or None if the config is incomplete."""
        try:
            return self.job.plan
        except MsTuneError:
            return None

    def value(self, name: str) -> Any:  # noqa: ANN401, PLR0911 - settings are of all types; one return per kind of name
        """Return the value of a name in a checklist's expression, or :data:`UNKNOWN` if it cannot be determined.

        ``network.x`` is a field of the network as the framework's class fills it in, ``degree.x`` a parallel degree,
        ``argument.x`` the final value of a launch script's argument, ``launch.processes`` and ``launch.environment.x``
        how the program is started, ``file.option.x`` a value in a file that an option names (``file.option``: its
        name), ``allocator.x`` an item of ``MS_ALLOC_CONF``, ``framework.release`` the release as a number,
        ``framework.legacy`` whether a legacy network is built,
        ``framework.model`` its ``model_type``, ``plan.passes`` whether the framework accepts the layers,
        ``registered.x`` the registered names of a kind, ``mindspore.x`` the values that MindSpore accepts.
        ``written.x`` is whether a key or argument is present, ``raw.x`` its value even if null; everything else is a
        key path, where null counts as missing.
        """
        room, _, rest = name.partition(".")
        if room == "network":
            return self.model.value(rest)
        if room == "degree":
            return self.job.part("read").parallel_degree(self.job, rest)
        if room in ("argument", "launch", "file", "allocator"):
            return self.source.look_up(name)[0] if isinstance(self.source, CodeSource) else UNKNOWN
        if room == "framework":
            return {"release": float(self.version), "legacy": is_legacy(self.source.data), "model": self.model.kind}[
                rest
            ]
        if room == "written":
            if rest.startswith(("argument.", "network.")):
                return self.find_setting(rest) is not None
            return self.source.get(tuple(rest.split(".")), MISSING) is not MISSING
        if room == "raw":
            return self.source.get(tuple(rest.split(".")), UNKNOWN)
        if room == "plan":
            return UNKNOWN if self.plan is None else self.plan.failure is None
        if room == "registered":
            return sorted(registered(rest, self.version, self.dialect))
        return mindspore_values(rest) if room == "mindspore" else self.get(name, UNKNOWN)

    def find_setting(self, name: str) -> KeyPath | None:
        """Return the key path that sets a name of an expression; None if it is not set."""
        room, _, rest = name.partition(".")
        if room == "network":
            return next((field.path for field in self.model.written_fields(rest) if field.path), None)
        if room in ("argument", "allocator"):
            return self.source.look_up(name)[1] if isinstance(self.source, CodeSource) else None
        return None if self.get(name) is None else tuple(name.split("."))

    @property
    def section(self) -> KeyPath:
        """Return the key path of the model's section."""
        return ("model",) if self.dialect is Dialect.MINDFORMERS_PYNATIVE else ("model", "model_config")

    def get(self, dotted: str, default: object = None) -> object:
        """Return the value at ``a.b.c``; null counts as missing, as in the frameworks."""
        value = self.source.get(tuple(dotted.split(".")), MISSING)
        return default if value is MISSING or value is None else value

    def integer(self, dotted: str, default: int | None = None) -> int | None:
        """Return the whole number at ``a.b.c``, or the default if it is missing or something else."""
        value = self.get(dotted)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def mapping(self, dotted: str) -> Mapping[object, object]:
        """Return the mapping at ``a.b.c``, or an empty one."""
        value = self.get(dotted)
        return value if isinstance(value, dict) else {}

    def names(self, option: str) -> frozenset[str]:
        """Return an option that is a list of names; empty if it is not given."""
        value = self.options.get(option, [])
        if not isinstance(value, list):
            raise TypeError(option)
        return frozenset(map(str, value))


class Violation(Record):
    """A violation that a check found in a config."""

    path: KeyPath  # the key path that is wrong
    message: str = "default"  # which of the check's messages applies
    # The message's parameters, in addition to ``key``, ``path`` and ``value``.
    params: Mapping[str, object] = MappingProxyType({})
    at_key: bool = False  # whether to point at the key; else at the value
    span: Location | None = None  # the location, if it differs from that of ``path``
    related: tuple[tuple[KeyPath, str], ...] = ()  # other relevant key paths, each with the message that explains it
    related_spans: tuple[tuple[Location, str], ...] = ()  # the same for locations without a key path
    # The fix, if the check itself knows it; otherwise the checklist's ``fix`` applies.
    changes: tuple[ValueChange, ...] = ()
    safe: bool = False  # whether ``changes`` certainly keep the author's intention
    # Whether the repository around the file cannot make it right; otherwise it is at most a warning.
    is_certain: bool = True


def parse_path(path: object) -> list[str | int]:
    """Parse a key path, or a pattern of one, from ``a.b.*`` or ``[a, b, "*"]``."""
    return path if isinstance(path, list) else [*str(path).split(".")]


class FixRule(Record):
    """A rule of a checklist for fixing the findings of a check."""

    kind: ChangeKind | None  # the kind of change; None for a rewrite or a move
    path: KeyPath | None  # the key path to change, if it is not the finding's own
    value: Any  # The new value or key. In a text, `{name}` is a parameter of the finding.
    spelled: bool  # whether `value` is the new value in YAML spelling (`set-text`)
    safe: bool  # whether the fix certainly keeps the author's intention
    messages: frozenset[str]  # the messages of the check to which it applies; empty for all
    rewrite: str | None = None  # the name of the function that fixes code or a setting of the environment
    sections: Mapping[str, KeyPath] = MappingProxyType({})  # the section that each misplaced key belongs to


class CodeSource(SourceFile):
    """A file other than YAML, with its own way to edit the text and to prove that an edit changes nothing else."""

    is_code = True

    @abstractmethod
    def with_text(self, text: str) -> CodeSource:
        """Return the same file with another text."""

    @abstractmethod
    def fix(self, rule: FixRule, violation: Violation) -> Fix:
        """Return the fix of a violation, not yet proved."""

    @abstractmethod
    def proves(self, fixes: Sequence[Fix]) -> bool:
        """Return whether the text with all these fixes can be parsed and has only the differences that they describe."""

    @abstractmethod
    def quoted(self) -> list[tuple[int, int]]:
        """Return the spans of values in which ``#`` does not start a comment."""

    def look_up(self, name: str) -> tuple[object, KeyPath | None]:  # noqa: ARG002 - only programs have some
        """Return an argument's value (``argument.x``, ``launch.x``, ``file.x``) and key path: here always unknown and None."""
        return UNKNOWN, None

    def find_span(self, name: str) -> Location | None:  # noqa: ARG002 - as above
        """Return the location of a name if it is only a part of the value at its key path: here always None."""
        return None


def per_job(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """Cache a function's result on the job, because several checks use it."""
    key = f"{function.__module__}.{function.__qualname__}"

    def get_cached(job: Any) -> T:  # noqa: ANN401 - a job or a view of one
        known: dict[str, T] = vars(job)
        if key not in known:
            known[key] = function(job)
        return known[key]

    return get_cached
