"""Lists that a config writes as text: what ``list(ast.literal_eval(text))`` makes of them, or raises.

:func:`ast.literal_eval` builds literals only and never runs anything; its input is bounded here, because a very long
or very deep text would take it long or overflow its stack.
"""

from __future__ import annotations

import ast
import re
from itertools import accumulate

from ms_tune.dialects.plan_result import stop

MAX_TEXT = 200_000
MAX_DEPTH = 50
# Signs in a row nest without brackets.
_SIGNS = re.compile(r"(?:[-+~]\s*){50}")
# A node that is no literal, as Python shows it to 3.13, with where in the memory it was, and from 3.14 on, with all that is in it.
_NODE = re.compile(r": (?:<ast\.(?P<old>\w+) object at 0x[0-9a-f]+>|(?P<new>[A-Z]\w*)\(.*\))$", re.DOTALL)


class TextTooBigError(Exception):
    """The text is longer, or nested more deeply, than any list of layers."""


def literal_list(value: object) -> list[object]:
    """The list that a text stands for.

    Raises:
        FrameworkStop: Python raises.
        TextTooBigError: The text is not looked at.
    """
    if not isinstance(value, str):
        stop("ValueError", f"malformed node or string: {value!r}")
    if len(value) > MAX_TEXT or _is_deep(value):
        raise TextTooBigError
    try:
        return list(ast.literal_eval(value))
    except (ValueError, TypeError, SyntaxError) as error:
        said = _NODE.sub(lambda node: f": <ast.{node['old'] or node['new']} object>", str(error))
        stop(type(error).__name__, said)
    except (RecursionError, MemoryError) as error:
        stop(type(error).__name__, str(error))


def _is_deep(text: str) -> bool:
    depths = accumulate((character in "[({") - (character in "])}") for character in text)
    return _SIGNS.search(text) is not None or max(depths, default=0) > MAX_DEPTH
