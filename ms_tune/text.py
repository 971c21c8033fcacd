"""Look up and render all texts for users, in English and Chinese.

A text has an id such as ``dryrun.fits``. The part before the dot names the data file in ``texts/`` that contains it, so
that only the files in use are loaded. Each text must have both languages; a text of several lines is a list. Output of
frameworks and programs is quoted and stays in English.

Code passes a :class:`Message` (an id and its parameters) around, never a sentence; the code that writes to the user
calls :func:`render` with the user's language.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path

from ms_tune.records import Record

_FOLDER = Path(__file__).parent / "texts"
# Counted nouns in English texts and the verbs after them: "1 blocks match" becomes "1 block matches". The report in the
# browser (report/templates/memory_data.js) does the same.
_ADJECTIVES = " small equal worst more safe launch offloaded data-parallel pipeline MTP multi-token-prediction "
_NOUNS = (
    " allocation argument batch block byte card check chunk communicator config copy count device difference dryrun entry epoch error"
    " event file finding fix folder gap info issue iteration layer layout level line log micro-batch number page parameter place plan"
    " process profile rank round row run sample script stage step tick time token value variant warning NPU "
)
_VERBS = {
    "are": "is",
    "were": "was",
    "have": "has",
    "do": "does",
    "match": "matches",
    "mention": "mentions",
    "remain": "remains",
    "tell": "tells",
}


class Language(str, Enum):
    """A language of ms-tune's output."""

    EN = "en"
    ZH = "zh"


class Text(Record):
    """One text in every language; ``{name}`` is a parameter (:meth:`str.format` syntax)."""

    en: str
    zh: str

    def say(self, language: Language) -> str:
        """Return the text in a language."""
        return self.en if language is Language.EN else self.zh


class Message(Record):
    """A text with its parameters. A parameter may itself be a message."""

    id: str  # the id of the text; empty for a text of a checklist
    params: Mapping[str, object]  # its parameters
    own_text: Text | None = None  # the text of a checklist; its counted nouns are not adapted

    @property
    def text(self) -> Text:
        """Return the text in both languages, with its parameters not filled in."""
        return self.own_text or lookup(self.id)

    def __str__(self) -> str:
        return render(self, Language.EN)

    def say(self, language: Language) -> str:
        """Return the sentence in a language."""
        return render(self, language)


def msg(text_id: str, /, **params: object) -> Message:
    """Create a :class:`Message`."""
    return Message(text_id, params)


@cache
def texts_of(room: str) -> Mapping[str, Mapping[str, str | list[str]]]:
    """Return all texts of one room from its file."""
    texts: dict[str, dict[str, str | list[str]]] = json.loads((_FOLDER / f"{room}.json").read_bytes())
    return texts


def lookup(text_id: str) -> Text:
    """Return the text with this id."""
    try:
        text = texts_of(text_id.partition(".")[0])[text_id]
    except OSError as error:
        raise KeyError(text_id) from error
    english, chinese = text["en"], text["zh"]
    return Text(
        english if isinstance(english, str) else "\n".join(english),
        chinese if isinstance(chinese, str) else "\n".join(chinese),
    )


def render(message: Message, language: Language) -> str:
    """Return the sentence for a message in the given language."""
    text = message.own_text or lookup(message.id)
    template = text.en if language is Language.EN else text.zh
    values = {
        name: render(value, language) if isinstance(value, Message) else value for name, value in message.params.items()
    }
    if message.own_text is None and "} " in template and (1 in values.values() or "1" in values.values()):
        template = singular(template, values)
    return template.format_map(values)


def singular(template: str, values: Mapping[str, object]) -> str:
    """Return an English text with "{count} blocks match" changed to "{count} block matches" where the count is 1."""
    return re.sub(r"\{(\w+)\}((?: [\w-]+){1,3})", lambda found: _one_of(found, values), template)


def _one_of(found: re.Match[str], values: Mapping[str, object]) -> str:
    """Return a parameter and the words after it, with noun and verb in the singular if the parameter is 1."""
    if str(values.get(found[1])) != "1":
        return found[0]
    words = found[2].split()
    noun = 1 if f" {words[0]} " in _ADJECTIVES and len(words) > 1 else 0
    for ending, singular_ending in (("ies", "y"), ("es", ""), ("s", "")):
        word = words[noun].removesuffix(ending) + singular_ending
        if words[noun].endswith(ending) and f" {word} " in _NOUNS:
            words[noun] = word
            if words[noun + 1 :]:
                words[noun + 1] = _VERBS.get(words[noun + 1], words[noun + 1])
            break
    return " ".join([f"{{{found[1]}}}", *words])


def shorten(text: str, most: int) -> str:
    """Return a text of at most ``most`` characters; a mark replaces the end of a longer one."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def language_from_environment() -> Language:
    """Return Chinese if the locale variables ask for it, else English (POSIX order: LC_ALL, LC_MESSAGES, LANG)."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name)
        if value:
            return Language.ZH if value.lower().startswith("zh") else Language.EN
    return Language.EN
