"""Compare the reader of scripts with bash: syntax one form at a time, unusual scripts, and random ones, with stand-ins for the launchers."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from itertools import permutations
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.source.shell.follow import Follower
from ms_tune.source.shell.parse import parse
from ms_tune.source.shell.syntax import File
from tests.files import read_data
from tests.source.shell.scripts import Scripts

if TYPE_CHECKING:
    from ms_tune.source.shell.commands import Started
    from ms_tune.source.shell.values import Argument


BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="bash is not installed")

FORMS = read_data("launch_forms.yaml")


def forms(kind: str, longer: str) -> list[Any]:
    """Return the scripts of a kind, and longer ones, which are slow."""
    return [*(f"{one}\n" for one in FORMS[kind]), *(pytest.param(one, marks=pytest.mark.slow) for one in FORMS[longer])]


@pytest.mark.parametrize("script", forms("known", "scripts"))
def test_what_follows_from_the_script_is_known(script: str, tmp_path: Path) -> None:
    assert differences(script, tmp_path) == []
    started = [one for several in read(script).values() for one in several]
    assert started
    assert [one for one in started if one.conditional] == []
    assert [one for one in started if any(word.text is None for word in one.words)] == []


@pytest.mark.parametrize("script", forms("unknown", "not_followed"))
def test_what_does_not_is_said_to_be_unknown(script: str, tmp_path: Path) -> None:
    assert differences(script, tmp_path) == []
    assert is_unknown(script)


# Bash reads this before a script. Every stand-in writes its arguments, each followed by a byte that no argument
# contains.
STAND_INS = """
for stand_in in msrun torchrun python; do
  eval "$stand_in() { printf '%s\\0' \\"\\$@\\" $'\\1' >> \\"\\$STAND_IN_CALLS\\"; }"
done
unset stand_in
"""
# Programs that scripts use; no other programs of the machine are available.
TOOLS = ("cat", "tee", "seq", "tr", "wc", "basename", "dirname", "expr", "xargs", "sleep", "chmod")


def tools(folder: Path) -> Path:
    """Return a folder with these programs, and with launchers for those that start programs themselves."""
    found = folder / "bin"
    if not found.is_dir():
        found.mkdir()
        for name in TOOLS:
            place = shutil.which(name)
            assert place is not None
            (found / name).symlink_to(place)
        for name in ("bash", "sh"):
            (found / name).symlink_to(BASH or "")
        for name in ("msrun", "torchrun", "python"):
            (found / name).write_text(f'#!{BASH}\n{name} "$@"\n')  # the function of this name
            (found / name).chmod(0o755)
    return found


SEED = 1
_BACKGROUND = re.compile(r"(?<![&>])&(?![&>])")
_FEW = 5  # commands whose orders are all tried


def calls_of(script: str, folder: Path) -> dict[str, list[list[str]]]:
    """Return the arguments that bash passed to each command, by its number, once per start."""
    (folder / "before").write_text(STAND_INS, encoding="utf-8")
    calls = folder / "calls"
    calls.write_bytes(b"")
    (folder / "script.sh").write_text(script, encoding="utf-8")
    empty = folder / "empty"
    shutil.rmtree(empty, ignore_errors=True)
    empty.mkdir()
    subprocess.run(
        [BASH or "bash", str(folder / "script.sh")],
        env={
            "BASH_ENV": str(folder / "before"),
            "STAND_IN_CALLS": str(calls),
            "PATH": str(tools(folder)),
            "LC_ALL": "C.UTF-8",
        },
        cwd=empty,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=20,
        check=False,
    )
    found: dict[str, list[list[str]]] = defaultdict(list)
    for call in calls.read_bytes().decode("utf-8", "surrogateescape").split("\0\1\0")[:-1]:
        number, *arguments = call.split("\0")
        found[number].append(arguments)
    return found


def read(script: str) -> dict[str, list[Started]]:
    """Return the result of the reader, by the number of the command."""
    return follow(script)[0]


def follow(script: str) -> tuple[dict[str, list[Started]], bool]:
    """Return the same, and whether more starts are reported as possible, if only a run could show it."""
    follower = Follower(lambda _: None)
    follower.follow(parse(File(Path("script.sh"), script)).body)
    found: dict[str, list[Started]] = defaultdict(list)
    for one in follower.started:
        if len(one.words) > 1 and one.words[0].text in ("msrun", "torchrun", "python"):
            found[one.words[1].text or ""].append(one)
    return found, bool(follower.unknown) or any(one.words and one.words[0].text is None for one in follower.started)


def is_unknown(script: str) -> bool:
    """Return whether something is reported as unknown: whether a program starts, one of its words, or other starts."""
    found, may_be_more = follow(script)
    started = [one for several in found.values() for one in several]
    return may_be_more or any(one.conditional or any(word.text is None for word in one.words) for one in started)


def pattern(words: tuple[Argument, ...]) -> re.Pattern[str]:
    """Return a pattern of possible arguments: an unknown one may be anything, and without quotes any number of words."""
    found = ""
    for word in words:
        anything = r"[\s\S]*" if word.open else r"[^\0]*"
        one = "".join(anything if piece.unknown else re.escape(piece.text) for piece in word.pieces)
        found += f"(?:{one}\0)?" if word.open else f"{one}\0"
    return re.compile(found)


def fits(one: Started, call: list[str]) -> bool:
    return pattern(one.words[2:]).fullmatch("".join(f"{word}\0" for word in call)) is not None


def _in_some_order(started: list[Started], calls: list[list[str]], *, any_order: bool) -> bool:
    """Return whether the calls are those that were read; background commands may come in any order."""
    orders = permutations(calls) if any_order and len(calls) <= _FEW else (calls,)
    return any(all(map(fits, started, order)) for order in orders)


def differences(script: str, folder: Path) -> list[str]:
    """Return the differences from bash."""
    real, (mine, may_be_more) = calls_of(script, folder), follow(script)
    wrong = []
    for number in {*real, *mine}:
        calls, started = real.get(number, []), mine.get(number, [])
        if may_be_more and not started:
            continue
        if any(one.conditional for one in started):
            wrong += [f"{number}: {call}" for call in calls if not any(fits(one, call) for one in started)]
        elif len(calls) != len(started) or not _in_some_order(
            started, calls, any_order=bool(_BACKGROUND.search(script))
        ):
            wrong.append(f"{number}: bash {calls}, read {[[word.text for word in one.words[2:]] for one in started]}")
    return wrong


@pytest.mark.slow
def test_random_scripts(tmp_path: Path) -> None:
    scripts = Scripts(Random(SEED))  # noqa: S311 - no secret
    known = total = 0
    for _ in range(120):
        script = scripts.script()
        assert differences(script, tmp_path) == [], script
        words = [word for started in read(script).values() for one in started for word in one.words]
        known += sum(word.text is not None for word in words)
        total += len(words)
    assert known > total * 0.7  # the share of known values must be high, so that the comparison is meaningful


@pytest.mark.parametrize(
    "script",
    [
        "A=1\nBASH <<EOF\npython 1 --x $A\nEOF\n",
        "A=1\nBASH -e <<'EOF'\npython 1 --x $A\nEOF\n",
        'export A=1\nexec BASH -s <<"EOF"\npython 1 --x $A\nEOF\n',
        "f() {\n\tBASH <<-EOF\n\t\tpython 1 \\\n\t\t--x $1\n\tEOF\n}\nf 5\n",
        "BASH <<A <<B\npython 1\nA\npython 2 --x 2\nB\n",
        "A=1\nBASH <<EOF\nA=2\npython 1 $A\nEOF\n",
        "BASH <<EOF\nfor one in 1; do\n  python 1 a\ndone\nEOF\npython 2\n",
        "BASH -c : <<EOF\npython 1\nEOF\n",
        "export A=1\nBASH <<EOF\nA=2\npython 1 $A \\$A \\\\$A\nEOF\n",
        "A='$B'\nexport B=3\nBASH <<EOF\npython 1 $A \"a  b\" 'c $B' \\\"\nEOF\n",
        "f() {\n  BASH <<EOF\ng() { python 1 $1 \\$1; }\ng 5\nEOF\n}\nf 4\n",
        "BASH <<EOF\npython 1 ${A:-x y} \nEOF\n",
        'BASH <<\'EOF\'\npython 1 "$(:)" ${A:-"x y"}\nEOF\n',
    ],
)
def test_here_documents(script: str, tmp_path: Path) -> None:
    assert differences(script.replace("BASH", BASH or ""), tmp_path) == []
