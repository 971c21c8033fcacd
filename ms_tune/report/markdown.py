"""Write Markdown for other people's pages: the comment of a merge request, and the hover of an editor.

Texts of a config are shown as they are: no mark-up, no HTML, no mention of a person, no reference to an issue, no link.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ms_tune.facts.keys import Key
from ms_tune.facts.query import REQUIRED
from ms_tune.report.console import Console

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.lint.rules import RuleEntry

_MARKS = r"([\\`*_{}\[\]|~$^])"
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# Mentions, references (GitHub `#1`, GitLab `!1 %1 ~label`) and links begin like this; an invisible space ends them.
_REFERENCES = r"(@|#|!|%|~|:(?=//)|www(?=\.))(?=\S)"
_UNSEEN = "[\0-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+"
_SHOWN_CHOICES = 20


def escape_markdown(text: str) -> str:
    """Return a text in one line that Markdown shows as it is."""
    plain = " ".join(re.sub(_UNSEEN, " ", text).split())
    return re.sub(_MARKS, r"\\\1", re.sub(_REFERENCES, "\\1\u200b", plain)).translate(_HTML)


def code_markdown(text: object) -> str:
    """Return a text as code, in which nothing has a meaning; also in a table."""
    plain = " ".join(re.sub(_UNSEEN, " ", str(text)).split()).replace("|", "\\|")
    fence = "`" * (max(map(len, re.findall("`+", plain)), default=0) + 1)
    gap = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{gap}{plain}{gap}{fence}" if plain else ""


def hover_markdown(key: Key | None, rules: Sequence[RuleEntry], release: str, console: Console) -> str:
    """Return the Markdown that an editor shows about a key and the checks that report it."""
    return "\n\n---\n\n".join(
        (*(_key_parts(key, release, console) if key is not None else ()), *_rule_parts(rules, console))
    )


def _key_parts(key: Key, release: str, console: Console) -> Iterator[str]:
    meaning = key.en if console.language.value == "en" else key.zh
    choices = [code_markdown(one) for one in key.choices]
    more = ["…"] if len(choices) > _SHOWN_CHOICES else []
    default = console.text("server.required") if key.default == REQUIRED else code_markdown(key.default)
    facts = {
        "type": " | ".join(map(code_markdown, key.types)),
        "default": "" if key.default is None else default,
        "choices": ", ".join(choices[:_SHOWN_CHOICES] + more),
        "releases": escape_markdown(f"{key.since or ''} – {key.until or ''}") if key.since or key.until else "",
        "state": console.text(f"server.state.{key.state}") if key.state != "live" else "",
    }
    lines = [
        f"- {console.labelled(console.text(f'server.key.{name}'), value)}" for name, value in facts.items() if value
    ]
    yield "\n".join(
        [
            f"**{code_markdown('.'.join(key.path))}** {escape_markdown(release)}",
            "",
            escape_markdown(meaning),
            "",
            *lines,
        ]
    )


def _rule_parts(rules: Sequence[RuleEntry], console: Console) -> Iterator[str]:
    for rule in rules:
        why, advice = (escape_markdown(console.say(text)) for text in (rule.why, rule.help))
        title = escape_markdown(console.say(rule.title))
        yield f"**{rule.id}** {code_markdown(rule.name)}: {title}\n\n{why}\n\n{advice}"
