"""What commands print and read where that follows from the script alone: ``echo``, ``printf``, ``cat``, ``seq``, and ``read``.

As the manuals of bash ("Bash Builtin Commands") and of the GNU core utilities have it; None stands for what only a run could tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.facts.launchers import launcher_named
from ms_tune.facts.query import load
from ms_tune.source.shell.builtins import set_to
from ms_tune.source.shell.state import Array, unknown_piece
from ms_tune.source.shell.values import Piece, Pieces, Reason, ScriptPlace, text_of
from ms_tune.source.shell.words import NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.source.shell.state import ShellState
    from ms_tune.source.shell.values import Argument

_NOT_READING = frozenset(load("bash")["not_reading"])
_FORMAT = re.compile(
    r"%(?P<width>0?\d*)(?P<kind>[sd%])|\\(?P<letter>[nt\\\"'])|(?P<plain>[^%\\]+)|(?P<unread>.)", re.DOTALL
)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'"}
_NUMBER = re.compile(r"-?\d{1,9}")
_OPTION = re.compile(r"-([a-zA-Z]+)(.*)", re.DOTALL)
_MOST = 1_000  # lines


@dataclass(slots=True)
class Input:
    """What commands read: a text, and how far they have come; no text where that is unknown."""

    pieces: Pieces
    at: int = 0
    lost: bool = False

    @property
    def text(self) -> str | None:
        """What is left to be read."""
        text = None if self.lost else text_of(self.pieces)
        return None if text is None else text[self.at :]

    def line(self, end: str) -> tuple[str, bool] | None:
        """The next line, and whether it has an end; None if it is not known."""
        left = self.text
        if left is None:
            return None
        line, mark, _ = left.partition(end) if end else (left, "", "")
        self.at += len(line) + len(mark)
        return line, bool(mark)


def printed_by(arguments: Sequence[Argument], given: Input | None, place: ScriptPlace) -> Pieces | None:
    """What a command prints; None where it is none of those that are known."""
    name, words = arguments[0].text, arguments[1:]
    if name == "echo":
        return _echo(words, place)
    if name == "printf":
        return _printf(words, place)
    if name in ("cat", "tee"):
        return _cat(name, words, given, place)
    if name in ("tr", "wc") and given is not None:
        text = _filtered(name, [word.text or "" for word in words], given.text)
        return None if text is None else (Piece(text, place),)
    texts = [word.text or "" for word in words]
    if name not in _SMALL or any(word.text is None or word.open for word in words):
        return None
    text = _SMALL[name](texts)
    return None if text is None else (Piece(f"{text}\n", place),)


def _plain(word: Argument, place: ScriptPlace) -> list[Piece]:
    return [piece if piece.unknown else Piece(piece.text, place) for piece in word.pieces]


def _echo(words: Sequence[Argument], place: ScriptPlace) -> Pieces | None:
    end, escapes = "\n", False
    while words and re.fullmatch(r"-[neE]+", words[0].text or ""):
        letters = words[0].text or ""
        end = "" if "n" in letters else end
        escapes = letters.rfind("e") > letters.rfind("E") if set(letters) & {"e", "E"} else escapes
        words = words[1:]
    found: list[Piece] = []
    for number, word in enumerate(words):
        found += [Piece(" ", place)] * bool(number) + _plain(word, place)
    if escapes:
        for number, piece in enumerate(found):
            if re.search(r"\\[^nt\\]|%?\\$", piece.text):
                return None
            text = re.sub(r"\\([nt\\])", lambda match: _ESCAPES[match[1]], piece.text)
            found[number] = piece if piece.unknown else Piece(text, place)
    return (*found, Piece(end, place))


def _printf(words: Sequence[Argument], place: ScriptPlace) -> Pieces | None:
    form = words[0].text if words else None
    if form is None or form.startswith("-") or any(word.open for word in words):
        return None
    left, found = list(words[1:]), list[Piece]()
    while True:
        before = len(left)
        for match in _FORMAT.finditer(form):
            if match["unread"] or (match["width"] and match["kind"] != "d"):
                return None
            if match["plain"] or match["letter"]:
                found.append(Piece(match["plain"] or _ESCAPES[match["letter"]], place))
            elif match["kind"] == "%":
                found.append(Piece("%", place))
            elif match["kind"] == "s":
                found += _plain(left.pop(0), place) if left else []
            else:
                text = (left.pop(0).text or "") if left else "0"
                if not _NUMBER.fullmatch(text) or (text.lstrip("-").startswith("0") and text != "0"):
                    return None
                found.append(Piece(f"{int(text):{match['width']}d}", place))
        if not left or len(left) == before:
            return tuple(found)


def _cat(name: str, words: Sequence[Argument], given: Input | None, place: ScriptPlace) -> Pieces | None:
    files = [word for word in words if word.text != "-" and not (name == "tee" and word.text == "-a")]
    if name == "tee" or not files:
        return given.pieces if given is not None and not given.at and not given.lost else None
    if len(files) != 1 or files[0].text is None or files[0].text.startswith("-"):
        return None
    return (file_piece(files[0].text, place),)


def reads_nothing(name: str) -> bool:
    """Whether a program leaves what it is given to read for those behind it."""
    return launcher_named(name) is not None or name in _NOT_READING


def _filtered(name: str, texts: list[str], text: str | None) -> str | None:
    """``tr , ' '`` with one letter for one other, ``wc -l`` and ``wc -w``."""
    if text is None or not text.isascii():
        return None
    if name == "wc":
        counts = {"-l": text.count("\n"), "-w": len(text.split())}
        return f"{counts[texts[0]]}\n" if len(texts) == 1 and texts[0] in counts else None
    if len(texts) == 2 and texts[0] == "-d" and len(texts[1]) == 1 and texts[1] != "\\":  # noqa: PLR2004
        return text.replace(texts[1], "")
    letters = [_ESCAPES.get(one[1:], one) if one.startswith("\\") else one for one in texts]
    return text.replace(letters[0], letters[1]) if [len(one) for one in letters] == [1, 1] else None


def file_piece(name: str, place: ScriptPlace) -> Piece:
    """What stands in a file, which is read where it is a script."""
    return unknown_piece(Reason.FILE, name, place)


def _seq(texts: list[str]) -> str | None:
    if not 1 <= len(texts) <= 3 or not all(map(_NUMBER.fullmatch, texts)):  # noqa: PLR2004 - first, step, last
        return None
    numbers = [int(text) for text in texts]
    first, last = (1 if len(numbers) == 1 else numbers[0]), numbers[-1]
    by = numbers[1] if len(numbers) == 3 else 1  # noqa: PLR2004
    if by == 0 or abs(last - first) // abs(by) > _MOST or any(re.match(r"-?0\d", text) for text in texts):
        return None
    return "\n".join(map(str, range(first, last + (1 if by > 0 else -1), by)))


def _basename(texts: list[str]) -> str | None:
    if not 1 <= len(texts) <= 2 or texts[0].startswith("-") or not texts[0].strip("/"):  # noqa: PLR2004 - name and ending
        return None
    name = texts[0].rstrip("/").rpartition("/")[2]
    end = texts[1] if len(texts) > 1 else ""
    return name.removesuffix(end) if name != end else name


def _dirname(texts: list[str]) -> str | None:
    if len(texts) != 1 or texts[0].startswith("-") or not texts[0].strip("/"):
        return None
    folder, slash, _ = texts[0].rstrip("/").rpartition("/")
    return folder.rstrip("/") or ("/" if slash else ".")


def _expr(texts: list[str]) -> str | None:
    if len(texts) != 3 or not (_NUMBER.fullmatch(texts[0]) and _NUMBER.fullmatch(texts[2])):  # noqa: PLR2004 - one operator
        return None
    left, right = int(texts[0]), int(texts[2])
    if texts[1] in ("/", "%") and right:
        whole = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return str(whole if texts[1] == "/" else left - whole * right)
    made = {"+": left + right, "-": left - right, "*": left * right}
    return str(made[texts[1]]) if texts[1] in made else None


_SMALL = {"seq": _seq, "basename": _basename, "dirname": _dirname, "expr": _expr}


def read_into(texts: Sequence[str | None], given: Input, state: ShellState, place: ScriptPlace) -> bool | None:
    """``read`` from a text that is known: its variables are set; whether a whole line was there, None if it is not read here."""
    options = _options(texts)
    marks = " \t\n"
    ifs = state.variables.get("IFS")
    if ifs is not None:
        known = text_of(ifs) if isinstance(ifs, tuple) else None
        if known is None or len(known) > 1 or (known and known in " \t\n"):
            return None
        marks = known
    if options is None or given.text is None:
        return None
    flags, array, end, names = options
    line, whole = given.line(end) or ("", False)
    if "r" not in flags:
        if "\\" in line.replace("\\\n", ""):
            return None
        line = line.replace("\\\n", "")
    if marks and marks not in " \t\n" and line.endswith(marks):
        return None
    count = len(names) if array is None else 0
    for name, value in zip(
        [array] if array else names, _parted(line, marks, count, array=array is not None), strict=True
    ):
        if name in state.odd:
            return None
        made = (
            Array(tuple((at, (Piece(one, place),)) for at, one in enumerate(value)))
            if array
            else (Piece(value[0], place),)
        )
        set_to(state, name, made)
    return whole


def _options(texts: Sequence[str | None]) -> tuple[str, str | None, str, list[str]] | None:
    flags, array, end, at = "", None, "\n", 0
    while at < len(texts) and (match := _OPTION.fullmatch(texts[at] or "")):
        letters, at = match[1], at + 1
        flags += letters
        if match[2] or not set(letters) <= set("rsapd") or any(one in letters[:-1] for one in "apd"):
            return None
        if letters[-1] in "apd":
            value = texts[at] if at < len(texts) else None
            at += 1
            if value is None or len(value) * (letters[-1] == "d") > 1:
                return None
            array = value if letters[-1] == "a" else array
            end = value if letters[-1] == "d" else end
    names = [text for text in texts[at:] if text is not None]
    if len(names) < len(texts) - at or not all(map(NAME.fullmatch, [*names, *([array] if array else [])])):
        return None
    return (flags, array, end, names) if names or array else None


def _parted(line: str, marks: str, count: int, *, array: bool) -> list[list[str]]:
    """The values of the variables, or all elements of an array as one."""
    if marks == " \t\n":
        parts = line.strip(marks).split(None, count - 1 if count else -1) if line.strip(marks) else []
    else:
        parts = line.split(marks, count - 1 if count else -1) if marks and line else [line] if line else []
    if array:
        return [parts]
    return [[one] for one in [*parts, *[""] * (count - len(parts))]]
