"""The names of classes that a framework takes in a config: optimizers, schedules, trainers, callbacks, networks ...

``MindFormerRegister`` (``mindformers/tools/register/register.py``) finds the classes of both graphs by name; for some of
them the dynamic graph's trainer compares names itself (``mindformers/pynative/trainer/utils.py``).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from ms_tune.enums import Dialect
from ms_tune.facts.query import ABSENT, all_at, at, load, served
from ms_tune.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable


ANY_PARAMETER = "**"  # among those of a class of a repository that lets others through


@cache
def registered(kind: str, release: str, dialect: Dialect) -> frozenset[str]:
    """The names of one kind that a release takes.

    Args:
        kind: ``optimizer``, ``lr_schedule``, ``trainer``, ``callback``, ``dataset``, ``dataset_loader``, ``runner_wrapper``,
            ``metric``, ``processor``, ``tokenizer``; ``model`` and ``config`` for legacy models, ``core_model`` and
            ``core_config`` for others.
        release: A served release.
        dialect: ``mindformers`` or ``mindformers-pynative``.
    """
    modes = load("registries")
    own = modes["dynamic"].get(kind) if dialect is Dialect.MINDFORMERS_PYNATIVE else None
    return frozenset(all_at(own or modes["static"].get(kind, {}), release))


def releases_registering(classes: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The releases of MindFormers whose registers are most like that of a repository, oldest first.

    Args:
        classes: The kind and the name of each class that it registers; those that no release registers count for none.
    """
    kinds = load("registries")["static"]
    known = {
        release: {(kind, name) for kind in kinds for name in registered(kind, release, Dialect.MINDFORMERS)}
        for release in served(Dialect.MINDFORMERS)
    }
    found = frozenset(classes) & frozenset().union(*known.values())
    unlike = {release: len(found ^ classes) for release, classes in known.items()}
    return tuple(release for release, count in unlike.items() if count == min(unlike.values()))


DEFAULTED = "?"


@cache
def needed_arguments(kind: str, name: str, release: str) -> tuple[tuple[str, ...], ...]:
    """Groups of arguments of which a class cannot be built without one of each; empty where that is not known.

    :data:`DEFAULTED` stands behind one that has a default: only null leaves the class without it.

    A schedule that is to warm up takes ``warmup_steps`` or ``warmup_ratio`` (``core/lr/lr_schedule.py``, MindFormers 1.6 to 2.1).

    Args:
        kind: As :func:`arguments_of` takes it; known of ``lr_schedule``.
        name: The class.
        release: A served release.
    """
    groups = all_at(load("needed").get(kind, {}), release).get(name, ())
    return tuple(tuple(group) for group in groups)


class Arguments(Record):
    """The keyword arguments of a class."""

    names: frozenset[str]  # those that it knows
    free: bool  # whether it lets others through
    switches: frozenset[str]  # those that are True or False where they are not given


@cache
def arguments_of(kind: str, name: str, release: str) -> Arguments | None:
    """What a registered class of MindFormers' static graph takes; None of a class that is not MindFormers' own.

    Args:
        kind: ``callback``, ``lr_schedule``, ``optimizer`` or ``runner_wrapper``.
        name: The class.
        release: A served release.
    """
    found = at(load("taken").get(kind, {}).get(name, {}), release)
    return (
        None if found is ABSENT else Arguments(frozenset(found["takes"]), found["free"], frozenset(found["switches"]))
    )


# What one family calls some parts, and what another one calls the same parts.
Row: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...]]"


@cache
def rows(source: str, target: str) -> tuple[Row, ...]:
    """The rows in which both families have names, in order: the first that fits counts. A family has its own names."""
    both = [] if source == target else [row for row in load("names")["rows"] if source in row and target in row]
    return tuple((tuple(row[source]), tuple(row[target])) for row in both)


def models(family: str) -> tuple[str, ...]:
    """The models of a family whose layers are known."""
    return tuple(load("names")["families"][family])


def cells_of(family: str) -> tuple[str, ...]:
    """The cells that every layer of a family of the static graph has."""
    return tuple(load("names")["cells"][family])


def family_of(model: str) -> str:
    """The family of a model of the static graph; models that are not known have the names of ``core``."""
    families = load("names")["families"]
    return next((family for family in ("legacy", "glm") if model in families[family]), "core")


def counterpart(model: str, family: str) -> str:
    """The model of another family that has the same layers, or the ones most like them."""
    found = load("names")["counterparts"].get(model, {}).get(family)
    return str(found or models(family)[0])
