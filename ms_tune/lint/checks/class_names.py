"""Checks of the names of classes, which MindFormers looks up in its register while it builds them one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.errors import closest
from ms_tune.facts.registries import registered
from ms_tune.facts.releases import served
from ms_tune.source.yaml import find_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext


def unregistered(context: CheckContext) -> Iterator[Violation]:
    """A name under which no class is registered.

    The option ``names`` says which key paths hold names, and of what kind. Left alone are classes that the config itself
    has registered (``auto_register``), and names that come with another release: a check of their own tells those.
    """
    names = context.options["names"]
    release = context.version
    for dotted, kind in names.items() if isinstance(names, dict) else ():
        known = registered(str(kind), release, context.dialect)
        for path, value in find_values(context.source.data, tuple(str(dotted).split("."))):
            odd = isinstance(value, (list, dict)) and path[-1] == "type"  # a list of names goes for networks alone
            given = str(value) if odd else value[0] if isinstance(value, list) and value else value
            section = context.source.get(path[:-1])
            own = isinstance(section, dict) and "auto_register" in section
            if given is None or isinstance(given, (list, dict)) or own or given in known:
                continue
            name = str(given)
            since = [one for one in served(context.dialect) if name in registered(str(kind), one, context.dialect)]
            similar = closest(name, sorted(known))
            params = {"name": name, "similar": similar, "since": since[0] if since else "", "release": release}
            yield Violation(path, "later" if since else "similar" if similar else "default", params)
