"""The page about memory for the browser: one file that works off line, for traces, snapshots and comparisons alike.

Its content security policy allows the file's own scripts and styles, by their hashes, and nothing else: no network, no
inline handlers. All data is in JSON islands, which are no scripts; all texts are in both languages.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from ms_tune.encode import json_text
from ms_tune.text import Language, Message, lookup, render, texts_of
from ms_tune.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

_LANGUAGES = {"en": "English", "zh": "中文"}  # each in its own words
_SHARED = ("memory.content.", "memory.phase.", "memory.severity.", "memory.column.")
_SCRIPTS = ("data", "timeline", "details", "flame", "addresses", "tables", "main")

POINTS = 6000  # of a curve


def document(title: str, data: Mapping[str, object], language: Language, further: str = "") -> str:
    """The page.

    Args:
        title: What it is about.
        data: What its scripts show; texts and versions are added.
        language: The language that it starts in.
        further: A section of HTML before that of theory. Its texts are elements with ``data-en`` and ``data-zh``.
    """
    import jinja2  # noqa: PLC0415 - an optional dependency, imported late

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    script = "\n".join(_asset("templates", f"memory_{name}.js") for name in _SCRIPTS)
    library, library_style = _asset("_vendor/uplot", "uPlot.iife.min.js"), _asset("_vendor/uplot", "uPlot.min.css")
    style = _asset("templates", "memory.css")
    common = {"version": __version__, "source": title, "language": language.value, "languages": _LANGUAGES}
    return environment.from_string(_asset("templates", "memory.html")).render(
        title=title,
        language=language.value,
        policy=_policy((library, script), (library_style, style)),
        library=_raw(library),
        script=_raw(script),
        library_style=_raw(library_style),
        style=_raw(style),
        further=_raw(further),
        data=_raw(_island({"texts": texts(), **common, **data})),
    )


@cache
def _asset(folder: str, name: str) -> str:
    package = files("ms_tune")
    for part in (folder if folder.startswith("_") else f"report/{folder}").split("/"):
        package = package.joinpath(part)
    return package.joinpath(name).read_text(encoding="utf-8")


def _raw(text: str) -> object:
    """Text that is not to be escaped: our own assets, and JSON that is escaped already."""
    import markupsafe  # noqa: PLC0415 - comes with Jinja2

    return markupsafe.Markup(text)  # noqa: S704 - nothing of the user's but the escaped JSON


def _policy(scripts: tuple[str, ...], styles: tuple[str, ...]) -> str:
    def hashes(texts: tuple[str, ...]) -> str:
        return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in texts)

    return f"default-src 'none'; script-src {hashes(scripts)}; style-src {hashes(styles)}; base-uri 'none'; form-action 'none'"


def _island(value: object) -> str:
    """JSON that cannot end the script element that it stands in."""
    text = json_text(value)
    for character, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028")):
        text = text.replace(character, escape)
    return text.replace("\u2029", "\\u2029")


def texts() -> dict[str, dict[str, str]]:
    """All texts that the page may need, by the names that its scripts use."""
    names = [name.partition(".")[2] for name in texts_of("memory_html")]
    texts = {name: lookup(f"memory_html.{name}") for name in names}
    texts |= {name.partition(".")[2]: text for name, text in texts_of("memory").items() if name.startswith(_SHARED)}
    return {name: text._asdict() for name, text in texts.items()}


def both(message: Message) -> dict[str, str]:
    """A message in both languages."""
    return {language.value: render(message, language) for language in Language}
