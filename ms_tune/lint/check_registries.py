"""Check the settings next to a class's name in a config against the classes that the framework registers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ms_tune.diagnostics import KeyPath
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.errors import closest
from ms_tune.facts.keys import ANY_PARAMETER, DEFAULTED, arguments_of, needed_arguments, registered
from ms_tune.facts.query import order, served
from ms_tune.lint.survey import find_oddities
from ms_tune.source.yaml import find_values

# Not the class's own: arguments of the register, and of `BaseTrainer.create_lr_scheduler` (1.6 to 2.1).
_OTHERS = frozenset(
    ("type", "auto_register", "warmup_epochs", "warmup_ratio", "warmup_lr_init", "total_steps", "warmup_steps")
)
_ALIKE, _MUCH_ALIKE = 0.8, 0.83
_LETTERS = 2  # by which the length of a misspelt data set key may differ from the correct one


def refused(context: CheckContext) -> Iterator[Violation]:
    """Report an argument that the class does not have, which raises a TypeError."""
    for path, name, key, similar in _unlisted(context, free=False):
        if _parameters(context, name).isdisjoint((key, ANY_PARAMETER)):
            params = {"owner": name[1], "similar": similar}
            yield Violation((*path, key), "similar" if similar else "default", params, at_key=True)


def unread(context: CheckContext) -> Iterator[Violation]:
    """Report an argument similar to a known one of a class that accepts any argument and ignores unknown ones."""
    for path, name, key, similar in _unlisted(context, free=True):
        if similar and key not in _parameters(context, name):
            yield Violation((*path, key), params={"owner": name[1], "similar": similar}, at_key=True)


def _unlisted(context: CheckContext, *, free: bool) -> Iterator[tuple[KeyPath, tuple[str, str], str, str]]:
    """Yield each argument that a class does not list: the class's path and name, the argument, and a similar listed one."""
    for path, name, section in find_oddities(context.job).get("class", ()):
        takes = arguments_of(*name, context.version)
        if takes is None or takes.free is not free:
            continue
        known = takes.names | _OTHERS
        for key in map(str, section):
            if key not in known:
                yield path, name, key, closest(key, known if free else takes.names, _ALIKE)


def _own_classes(context: CheckContext, kind: str) -> Mapping[str, frozenset[str] | None]:
    """Return the classes of a kind that the repository around the config registers, with their parameters."""
    checkout = context.job.checkout
    return checkout.classes.get(kind, {}) if checkout is not None else {}


def _parameters(context: CheckContext, name: tuple[str, str]) -> frozenset[str]:
    """Return the parameters of a class in the repository around the config; empty if it is not there or they are unknown."""
    return _own_classes(context, name[0]).get(name[1]) or frozenset()


def missing(context: CheckContext) -> Iterator[Violation]:
    """Report a class without an argument that it requires; an empty value counts as missing."""
    for path, name, section in find_oddities(context.job).get("class", ()):
        for group in needed_arguments(*name, context.version):
            if all(_lacks(section, one) for one in group):
                needed = " / ".join(one.removesuffix(DEFAULTED) for one in group)
                yield Violation((*path, "type"), params={"name": name[1], "needed": needed})


def _lacks(section: Mapping[object, object], name: str) -> bool:
    """Return whether an argument is empty, or missing without a default."""
    written = name.removesuffix(DEFAULTED)
    return section.get(written) is None and (written == name or written in section)


def unread_of_data(context: CheckContext) -> Iterator[Violation]:
    """Report an unknown key of a data set that is similar to one that MindFormers' data sets read.

    The option ``sections`` names the sections; keys in them that are not read have no effect and cause no warning.
    """
    for dotted in context.options["sections"]:
        for path, section in find_values(context.source.data, tuple(str(dotted).split("."))):
            takes = arguments_of("dataset", "", context.version)
            if takes is None or not isinstance(section, dict) or "auto_register" in section:
                continue
            for key in map(str, section):
                similar = "" if key in takes.names else closest(key, takes.names, _MUCH_ALIKE)
                if similar and abs(len(similar) - len(key)) <= _LETTERS:
                    yield Violation((*path, key), params={"similar": similar}, at_key=True)


def not_a_switch(context: CheckContext) -> Iterator[Violation]:
    """Report a text, a list or a number other than 0 and 1 as a switch: each counts as true, even ``'False'`` and ``Flase``.

    The option ``except`` names keys of other checks, ``refused-since`` the first release in which strict keys refuse other
    types.
    """
    others, since = context.names("except"), str(context.options.get("refused-since", "0"))
    refuses = order(context.version) >= order(since)
    for key, path, _ in find_oddities(context.job).get("switch", ()):
        if key is None or (".".join(key.path) not in others and not (key.strict and refuses)):
            yield Violation(path)


def no_switch_of_model(context: CheckContext) -> Iterator[Violation]:
    """Report a value that is not a switch in a model's field that must be one."""
    yield from map(Violation, find_oddities(context.job).get("field-switch", ()))


def not_a_number(context: CheckContext) -> Iterator[Violation]:
    """Report a text (even ``"64"``) or a list instead of a number of the model, or a count that is not a whole number."""
    for path, message in find_oddities(context.job).get("field-number", ()):
        yield Violation(path, message)


def unregistered(context: CheckContext) -> Iterator[Violation]:
    """Report a name under which no class is registered.

    The option ``names`` maps key paths to the kind of class that they name; with ``compared``, the framework compares names
    itself and uses no register. Classes registered by the config (``auto_register``) or its repository are skipped.
    """
    names, compared = context.options["names"], context.options.get("compared", False)
    release = context.version
    for dotted, kind in names.items():
        known = registered(str(kind), release, context.dialect)
        for path, value in find_values(context.source.data, tuple(str(dotted).split("."))):
            odd = isinstance(value, (list, dict)) and path[-1] == "type"  # only networks may be named by a list
            given = str(value) if odd else value[0] if isinstance(value, list) and value else value
            section = context.source.get(path[:-1])
            own = isinstance(section, dict) and "auto_register" in section
            if given is None or isinstance(given, (list, dict)) or own or given in known:
                continue
            name = str(given)
            checkout = context.job.checkout
            if not compared and checkout and (name in checkout.classes.get(kind, {}) or checkout.has_class(name)):
                continue
            since = [one for one in served(context.dialect) if name in registered(str(kind), one, context.dialect)]
            similar = closest(name, sorted(known))
            params = {"name": name, "similar": similar, "since": since[0] if since else "", "release": release}
            yield Violation(path, "later" if since else "similar" if similar else "default", params)
