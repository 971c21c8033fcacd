"""Look up the config keys of each dialect (one table for checks, schemas and docs), and the names of registered classes.

Optimizers, schedules, trainers, callbacks, networks: ``MindFormerRegister`` (``mindformers/tools/register/register.py``)
finds the classes of both graphs by name; some names the dynamic graph's trainer compares itself
(``mindformers/pynative/trainer/utils.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace

from ms_tune.enums import Dialect
from ms_tune.facts.models import FREE, facts_of
from ms_tune.facts.query import ABSENT, REMOVED, all_at, at, load, order, served
from ms_tune.records import Any, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    from ms_tune.diagnostics import KeyPath

State: TypeAlias = "Literal['live', 'dead', 'deprecated']"

BASE = "base_config"  # the key naming the configs that a config of MindFormers' static graph builds on
ANY_PARAMETER = "**"  # marks, among the parameters of a repository's class, that it accepts any others
DEFAULTED = "?"
_MODELS = {Dialect.MINDFORMERS: ("model", "model_config"), Dialect.MINDFORMERS_PYNATIVE: ("model",)}


class Key(SimpleNamespace):
    """One config key, as described by its row in the data; not a record, because hundreds are created per config."""

    path: tuple[str, ...]  # the key path; `*` is any item of a list
    name: str  # the last part of the path
    en: str  # a description of the setting
    zh: str
    types: tuple[str, ...]  # `int`, `float`, `str`, `bool`, `list`, `dict`, `null`; empty if anything goes
    # The framework's default; `ms_tune.facts.query.REQUIRED` if it has none.
    default: object = None
    choices: Sequence[object] = ()  # the values that the framework accepts, if they can be listed
    since: str | None = None  # the first framework version that knows the key; None if all releases in the data do
    until: str | None = None  # the last one; None likewise
    state: State = "live"  # `dead` keys are accepted but never read; `deprecated` ones will be removed
    strict: bool = False  # whether the framework itself refuses values of other types, or outside choices and bounds
    above: float | None = None  # the value must be larger than this
    least: float | None = None  # the value must be at least this
    most: float | None = None  # the value must not be larger than this
    read_by: Sequence[str] = ()  # the models that do read an otherwise dead key


@cache
def tables(dialect: Dialect, release: str | None = None) -> tuple[Key, ...]:
    """Return every key that a release of a dialect knows (None: any release); "until 2.0" includes all of 2.0.x.

    A model's own settings are limited to the releases in which some model class has a use for them.
    """
    if release is not None:
        wanted = (*order(release), 0, 0, 0)
        begun = [key for key in tables(dialect) if key.since is None or order(key.since) <= wanted]
        return tuple([key for key in begun if key.until is None or wanted[: len(last := order(key.until))] <= last])
    content, model, spans, keys = load(f"keys_{dialect.value}"), _MODELS.get(dialect), {}, []
    releases = load("releases")[dialect.value]["served"]
    for name, having in sorted(list_model_keys().items()) if model else ():
        knowing = [one for one in releases if one in having]
        if knowing:
            since, until = knowing[0], knowing[-1]
            spans[name] = {
                "since": None if since == releases[0] else since,
                "until": None if until == releases[-1] else until,
            }
    for row in content["keys"]:
        path = tuple(row["path"].split("."))
        types = tuple(row["type"].split("|")) if "type" in row else ()
        span = spans.pop(path[-1], {}) if path[:-1] == model else {}
        keys.append(Key(**{**row, **span, "path": path, "name": path[-1], "types": types}))
    for name, span in spans.items():  # keys without a description of their own
        en, zh = content["others"]["en"].format(name=name), content["others"]["zh"].format(name=name)
        keys.append(Key(path=(*(model or ()), name), name=name, types=(), en=en, zh=zh, **span))
    return tuple(keys)


@cache
def by_section(dialect: Dialect, release: str | None = None) -> Mapping[KeyPath, Mapping[str, Key]]:
    """Return the keys of each section (``()`` is the top level) that a release defines (None: any release)."""
    sections: dict[KeyPath, dict[str, Key]] = {}
    for key in tables(dialect, release) if release else tables(dialect):
        sections.setdefault(key.path[:-1], {})[key.name] = key
    return sections


@cache
def key_at(dialect: Dialect, *path: str) -> Key:
    """Return the key at a path that some release knows."""
    return by_section(dialect)[path[:-1]][path[-1]]


@cache
def keys_for(name: str, release: str) -> frozenset[str]:
    """Return every key from which the general model class or any other class of a release reads a field."""
    data, keys = load("models"), {name}
    for one in (data, *data["classes"].values()):
        if not one.get("legacy"):
            keys.update([key for key, to in all_at(one["aliases"], release).items() if to[0] == name])
    return frozenset(keys)


@cache
def dynamic_kinds(release: str) -> tuple[str, ...]:
    """Return the ``model_type`` of each model that the dynamic graph of a release has a network for."""
    kinds = (name for name, one in load("models")["classes"].items() if not one["legacy"])
    return tuple(sorted(kind for kind in kinds if "dynamic" in facts_of(release, kind=kind).modes))


@cache
def list_model_keys() -> Mapping[str, set[str]]:
    """Return every valid key of ``model.model_config`` with the releases in which some model class has a use for it."""
    data, found = load("models"), dict[str, set[str]]()
    releases, fields = data["releases"], data["fields"]
    aliases = {key: rules for key, rules in data["aliases"].items() if next(iter(rules.values()))[0] in fields}
    histories = [(one, releases) for one in (aliases, data["white"], data["latent"])]
    histories.append((fields, [one for one in releases if order(one) >= FREE]))
    for one in data["classes"].values():
        there: list[str] = []
        histories += [(one["defaults"], there), (one["aliases"], there)]
        for release in releases:
            facts = all_at({"names": one["names"], "ignored": one["ignored"]}, release)
            there += [release] if "names" in facts else []
            for key in facts["ignored"] if "names" in facts else ():
                found.setdefault(key, set()).add(release)
    for table, there in histories:
        for key, history in table.items():
            having, value = found.setdefault(key, set()), REMOVED
            for release in releases if len(having) < len(releases) else ():
                value = history.get(release, value)
                if value != REMOVED and release in there:
                    having.add(release)
    return found


def find_first_release(key: str, release: str) -> str | None:
    """Return the later release that introduced a key of ``model.model_config``; None if none did, or this one knows it."""
    having = list_model_keys().get(key, ())
    later = [one for one in load("models")["releases"] if one in having and order(one) > order(release)]
    return later[0] if later and release not in having else None


@cache
def mindspore_values(name: str) -> tuple[Any, ...]:
    """Return the valid values of a setting that MindSpore reads, or MindFormers passes to it.

    Args:
        name: ``pipeline_scheduler`` (``_PipelineScheduler`` in ``mindspore/parallel/_auto_parallel_context.py``, 2.9);
            ``splitting``, the values of ``parallel_mode`` that split operators (``PARALLEL_MODE`` in
            ``mindformers/tools/utils.py``); ``semi_automatic``, those of them that leave the strategy to the user;
            ``core_data_types``, the data types of Mcore models (``ms_dtype_mapping``, MindFormers 1.6 to 2.1);
            ``core_activations`` and ``dynamic_activations``, the functions for their ``hidden_act`` (``ACTIVATION_MAP`` of
            ``parallel_core/training_graph/activation.py`` and ``pynative/layers/activation.py``, 1.6 to 2.1);
            ``context_keys``, the keys of ``mindspore.set_context`` except those of ``ascend_config``; ``context_KEY``, the
            values of one.
    """
    return tuple(load("mindspore_context")["values"][name])


@cache
def registered(kind: str, release: str, dialect: Dialect) -> frozenset[str]:
    """Return the names of one kind of class that a release accepts.

    The kinds are ``optimizer``, ``lr_schedule``, ``trainer``, ``callback``, ``dataset``, ``dataset_loader``,
    ``runner_wrapper``, ``metric``, ``processor``, ``tokenizer``; ``model`` and ``config`` for legacy models, ``core_model``
    and ``core_config`` for others.
    """
    modes = load("registries")
    own = modes["dynamic"].get(kind) if dialect is Dialect.MINDFORMERS_PYNATIVE else None
    return frozenset(all_at(own or modes["static"].get(kind, {}), release))


def releases_registering(classes: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the releases of MindFormers whose registered classes are most like those of a repository, oldest first."""
    kinds = load("registries")["static"]
    known = {
        release: {(kind, name) for kind in kinds for name in registered(kind, release, Dialect.MINDFORMERS)}
        for release in served(Dialect.MINDFORMERS)
    }
    found = frozenset(classes) & frozenset().union(*known.values())
    differences = {release: len(found ^ classes) for release, classes in known.items()}
    return tuple(release for release, count in differences.items() if count == min(differences.values()))


@cache
def needed_arguments(kind: str, name: str, release: str) -> tuple[tuple[str, ...], ...]:
    """Return groups of arguments of which a class needs at least one each; empty if unknown.

    :data:`DEFAULTED` follows an argument that has a default: only null leaves the class without it.

    For example, a schedule with warm-up needs ``warmup_steps`` or ``warmup_ratio`` (``core/lr/lr_schedule.py``, 1.6 to 2.1).
    Only known for the kind ``lr_schedule``.
    """
    groups = all_at(load("needed").get(kind, {}), release).get(name, ())
    return tuple(tuple(group) for group in groups)


class Arguments(Record):
    """The keyword arguments of a class."""

    names: frozenset[str]  # the declared arguments
    free: bool  # whether it accepts any others
    switches: frozenset[str]  # the arguments whose default is True or False


@cache
def arguments_of(kind: str, name: str, release: str) -> Arguments | None:
    """Return the arguments of a registered class of MindFormers' static graph; None if the class is not MindFormers' own.

    The kinds are ``callback``, ``lr_schedule``, ``optimizer`` and ``runner_wrapper``.
    """
    found = at(load("taken").get(kind, {}).get(name, {}), release)
    return (
        None if found is ABSENT else Arguments(frozenset(found["takes"]), found["free"], frozenset(found["switches"]))
    )
