"""All texts for users, in English and Chinese.

A text has an id such as ``dryrun.fits``: the part before the dot names the module of this package that holds it, so
that each room keeps its own texts and only the rooms in use are loaded. The two languages stand side by side in one
:class:`Text`; a text in one language only cannot be written.

Code passes a :class:`Message` (an id and its parameters) around and never a sentence; whoever writes to the user
calls :func:`render` with the user's language.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Language(str, Enum):
    """A language that ms-tune speaks."""

    EN = "en"
    ZH = "zh"


class Text(NamedTuple):
    """One text in every language; ``{name}`` marks a parameter (:meth:`str.format` syntax)."""

    en: str
    zh: str


@dataclass(frozen=True)
class Message:
    """A text's id with its parameters. A parameter may itself be a message."""

    id: str
    params: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return render(self, Language.EN)


def msg(text_id: str, /, **params: object) -> Message:
    """Shorthand for a :class:`Message`."""
    return Message(text_id, params)


def lookup(text_id: str) -> Text:
    """The text with this id.

    Raises:
        KeyError: No such text. That is a defect of ms-tune, never of the user.
    """
    room, _, _ = text_id.partition(".")
    texts: Mapping[str, Text] = import_module(f"ms_tune.texts.{room}").TEXTS
    return texts[text_id]


def render(message: Message, language: Language) -> str:
    """The sentence for a message in the given language."""
    template = lookup(message.id)[0 if language is Language.EN else 1]
    values = {
        name: render(value, language) if isinstance(value, Message) else value for name, value in message.params.items()
    }
    return template.format_map(values)


def language_from_environment() -> Language:
    """Chinese if the locale variables ask for it, else English (POSIX order: LC_ALL, LC_MESSAGES, LANG)."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name)
        if value:
            return Language.ZH if value.lower().startswith("zh") else Language.EN
    return Language.EN
