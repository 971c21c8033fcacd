"""The keys that each dialect knows: one table for unknown-key, type and default checks, for schemas and for the docs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ms_tune.enums import Dialect
from ms_tune.facts.models import facts_of
from ms_tune.facts.query import all_at, at, load, order, releases_having, served
from ms_tune.records import Record
from ms_tune.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping

State: TypeAlias = Literal["live", "dead", "deprecated"]

BASE = "base_config"  # the configs that one of MindFormers' static graph builds on
_MODELS = {Dialect.MINDFORMERS: ("model", "model_config"), Dialect.MINDFORMERS_PYNATIVE: ("model",)}


class Key(Record):
    """One setting."""

    path: tuple[str, ...]  # the key path; `*` stands for the items of a list
    types: tuple[str, ...]  # `int`, `float`, `str`, `bool`, `list`, `dict`, `null`; empty if anything goes
    # What the framework takes where the key is missing; `ms_tune.facts.query.REQUIRED` if there is no default.
    default: object
    choices: tuple[object, ...]  # the values that the framework takes, if they can be listed
    since: str | None  # the first framework version that knows the key; None if all do that ms-tune knows
    until: str | None  # the last one, likewise
    text: Text  # what the setting is for
    state: State = "live"  # `dead` keys are accepted and read by nothing; `deprecated` ones are on their way out
    strict: bool = False  # whether the framework itself refuses values of other types, or beyond choices and bounds
    above: float | None = None  # the value has to be larger than this
    least: float | None = None  # the value has to be at least this
    most: float | None = None  # the value must not be larger than this
    read_by: tuple[str, ...] = ()  # the models that do read a dead key

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path[-1]


@cache
def tables(dialect: Dialect) -> tuple[Key, ...]:
    """Every key of a dialect, of all its versions; a model's own settings are those that its classes know, as long as they do."""
    found, content, model = [], load(f"keys_{dialect.value}"), _MODELS.get(dialect)
    spans = _release_spans(dialect) if model else {}
    for row in content["keys"]:
        path = tuple(row["path"].split("."))
        of_model = model is not None and path[:-1] == model
        since, until = spans.pop(path[-1], (None, None)) if of_model else (row.get("since"), row.get("until"))
        limits = (row.get("above"), row.get("least"), row.get("most"))
        types, choices = tuple(filter(None, row.get("type", "").split("|"))), tuple(row.get("choices", ()))
        text, state = Text(row["en"], row["zh"]), row.get("state", "live")
        strict = row.get("strict", False)
        read_by = tuple(row.get("read_by", ()))
        found.append(Key(path, types, row.get("default"), choices, since, until, text, state, strict, *limits, read_by))
    for name, span in sorted(spans.items()):  # nobody has written what these are for
        text = Text(*(content["others"][language].format(name=name) for language in ("en", "zh")))
        found.append(Key((*(model or ()), name), (), None, (), *span, text))
    return tuple(found)


@cache
def types_by_section(dialect: Dialect) -> Mapping[tuple[str, ...], Mapping[str, str]]:
    """The names of :func:`by_section`, of all versions, with the types of each (``int|null``; empty if anything goes).

    No more is needed to tell whose a config is, and all else that is known of keys takes three times as long to read.
    """
    sections: dict[tuple[str, ...], dict[str, str]] = {}
    model = _MODELS.get(dialect)
    if model is not None:
        sections[model] = dict.fromkeys(_release_spans(dialect), "")
    for row in load(f"keys_{dialect.value}")["keys"]:
        *section, name = row["path"].split(".")
        sections.setdefault(tuple(section), {})[name] = row.get("type", "")
    return sections


def _release_spans(dialect: Dialect) -> dict[str, tuple[str | None, str | None]]:
    """Since and until when models have their settings; None where it is from the first release on, or to the last."""
    releases, spans = served(dialect), {}
    for name, having in known().items():
        knowing = [release for release in having if release in releases]
        if knowing:
            since, until = knowing[0], knowing[-1]
            spans[name] = (None if since == releases[0] else since), (None if until == releases[-1] else until)
    return spans


@cache
def default_of(dialect: Dialect, path: str) -> Any:  # noqa: ANN401 - settings are of all types
    """What the framework takes where a key, by its dotted path, is missing; all else of keys takes longer to read."""
    return next(row.get("default") for row in load(f"keys_{dialect.value}")["keys"] if row["path"] == path)


@cache
def open_sections(dialect: Dialect) -> frozenset[tuple[str, ...]]:
    """The sections that take any other key as well, which then goes to a class of the user's choice."""
    return frozenset(map(tuple, load(f"keys_{dialect.value}").get("open", ())))


@cache
def by_section(dialect: Dialect, version: str | None = None) -> Mapping[tuple[str, ...], Mapping[str, Key]]:
    """The keys of each section (``()`` is the top level) that a framework version knows; of all versions for None."""
    sections: dict[tuple[str, ...], dict[str, Key]] = {}
    for key in tables(dialect):
        if version is None or known_in(key, version):
            sections.setdefault(key.path[:-1], {})[key.path[-1]] = key
    return sections


@cache
def key_at(dialect: Dialect, *path: str) -> Key:
    """The key at a path that some version knows."""
    return by_section(dialect)[path[:-1]][path[-1]]


@cache
def names(dialect: Dialect, section: tuple[str, ...] = (), version: str | None = None) -> frozenset[str]:
    """The names of the keys in one section, of one version or of all."""
    return frozenset(by_section(dialect, version).get(section, ()))


def known_in(key: Key, version: str) -> bool:
    """Whether a framework version knows a key; "until 2.0" takes in all of 2.0.x."""
    if key.since is None and key.until is None:
        return True
    wanted = (*order(version), 0, 0, 0)
    last = order(key.until) if key.until else ()
    return order(key.since or "0") <= wanted and (not last or wanted[: len(last)] <= last)


@cache
def keys_for(name: str, release: str) -> frozenset[str]:
    """Every key that some class of a release, or the general one, reads a field from."""
    data = load("models")
    rules = [data["aliases"], *(one["aliases"] for one in data["classes"].values() if not one["legacy"])]
    return frozenset((name, *(key for rule in rules for key, to in all_at(rule, release).items() if to[0] == name)))


@cache
def dynamic_kinds(release: str) -> tuple[str, ...]:
    """The models that a release's dynamic graph has a network for, by the ``model_type`` of each."""
    kinds = (name for name, one in load("models")["classes"].items() if not one["legacy"])
    return tuple(sorted(kind for kind in kinds if "dynamic" in facts_of(release, kind=kind).modes))


@cache
def known() -> Mapping[str, tuple[str, ...]]:
    """Every key of ``model.model_config`` that a class of models has a use for, with the releases in which one has."""
    data = load("models")
    releases, found = data["releases"], dict[str, set[str]]()
    tables = [(data["latent"], set(releases))]
    for one in data["classes"].values():
        there = releases_having(one["names"], releases)
        tables += [(one["defaults"], there), (one["aliases"], there)]
        for release in there:
            for key in at(one["ignored"], release):
                found.setdefault(key, set()).add(release)
    for release in releases:
        for key in facts_of(release).keys_known():
            found.setdefault(key, set()).add(release)
    for histories, there in tables:
        for key, history in histories.items():
            having = found.setdefault(key, set())
            if len(having) < len(releases):
                having |= there & releases_having(history, releases)
    return {key: tuple(sorted(having, key=releases.index)) for key, having in found.items() if having}


def known_since(key: str, release: str) -> str | None:
    """The release that brought a key of ``model.model_config`` that an earlier one does not know, if any did."""
    releases = known().get(key, ())
    return None if release in releases else next((one for one in releases if order(one) > order(release)), None)


@cache
def mindspore_values(name: str) -> tuple[Any, ...]:
    """Values of settings that MindSpore, or MindFormers for it, reads.

    Args:
        name: ``pipeline_scheduler`` (``_PipelineScheduler`` in ``mindspore/parallel/_auto_parallel_context.py``, 2.9);
            ``splitting``, the values of ``parallel_mode`` with which operators are split (``PARALLEL_MODE`` in
            ``mindformers/tools/utils.py``); ``semi_automatic``, those of them with which the user says how; ``core_data_types``,
            the names of data types that Mcore models take (``ms_dtype_mapping``, MindFormers 1.6 to 2.1); ``core_activations``
            and ``dynamic_activations``, the functions that their ``hidden_act`` names (``ACTIVATION_MAP`` of
            ``parallel_core/training_graph/activation.py`` and ``pynative/layers/activation.py``, 1.6 to 2.1); ``context_keys``, the
            keys that ``mindspore.set_context`` takes beside those of ``ascend_config``, and ``context_KEY``, the values of one.
    """
    return tuple(load("mindspore_context")["values"][name])
