"""Checks of which network an Mcore model (``use_legacy: False``) is, and whether it can be trained.

``MindFormerRegister.get_instance_type_from_cfg`` in ``mindformers/tools/register/register.py`` finds the network by
``architectures``; each network's ``__new__`` in ``mindformers/models/*/modeling_*.py`` decides what is built. MindFormers 1.6
to 2.1. A ``config.json`` beside the weights may say all this in place of the config.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.config.source import MISSING
from ms_tune.frameworks.models import facts_of
from ms_tune.frameworks.releases import VERSIONS
from ms_tune.lint.checks import startup
from ms_tune.lint.context import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.lint.context import Context

_MODEL = ("model", "model_config")
_NETWORK = (*_MODEL, "architectures")


def untrained(context: Context) -> Iterator[Violation]:
    """A network that the release does not have, or has for inference only."""
    names = context.source.get(_NETWORK)
    name = str(names[0]) if isinstance(names, list) and names else str(names)
    since = next((one for one in VERSIONS if facts_of(one, architecture=name).name), None)
    if since is None:
        return
    release = startup.release(context)
    facts = facts_of(release, architecture=name)
    params = {"name": name, "release": release, "since": since}
    if facts.name is None:
        yield Violation(_NETWORK, "later", params)
    elif not facts.modes:
        yield Violation(_NETWORK, params=params)


def unnamed(context: Context) -> Iterator[Violation]:
    """A model whose settings are named and whose network is not."""
    kind = context.source.get((*_MODEL, "model_type"))
    usual = facts_of(startup.release(context), kind=str(kind)).architectures
    elsewhere = context.get("model.pretrained_model_dir") or context.get("pretrained_model_dir")
    if usual and not elsewhere and context.source.get(_NETWORK, MISSING) in (MISSING, None):
        yield Violation(_MODEL, params={"network": usual[0]})
