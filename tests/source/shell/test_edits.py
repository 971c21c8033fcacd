"""Test assignments and edited arguments of scripts: afterwards bash passes exactly the requested arguments to the program."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ms_tune.dialects.megatron.arguments import command_of
from ms_tune.dialects.megatron.edit_arguments import ArgumentChange, with_change
from ms_tune.source.edit import EditRefusedError
from ms_tune.source.shell.read import Assignment, assignments, read_launches
from tests.source.shell.test_bash import BASH, calls_of

RELEASE = "2.3"
RUN = "torchrun --nproc_per_node 8 pretrain_gpt.py"
NAMES = (
    "--num-layers",
    "--recompute-num-layers",
    "--recompute-method",
    "--sequence-parallel",
    "--noop-layers",
    "--bf16",
)
SWITCHES = ("--sequence-parallel", "--bf16")


def changed(text: str, change: ArgumentChange, number: int = 0) -> str:
    return with_change(read_launches(Path("pretrain.sh"), text), RELEASE, number, change).file.text


def argument_names(text: str) -> list[str]:
    command = command_of(read_launches(Path("pretrain.sh"), text).launches[0], RELEASE)
    assert command is not None
    return [one.name for one in command.items]


OUT = ArgumentChange(1, "--recompute-num-layers", None)
FOUR = ArgumentChange(1, "--recompute-num-layers", ("4",))
METHOD = ArgumentChange(1, "--recompute-method", ("block",), new=True)


@pytest.mark.parametrize(
    ("text", "change", "expected"),
    [
        (f"{RUN} --bf16 --recompute-num-layers 9\n", OUT, f"{RUN} --bf16\n"),
        (f"{RUN} --bf16 --recompute-num-layers 9\n", FOUR, f"{RUN} --bf16 --recompute-num-layers 4\n"),
        (f"{RUN} --bf16 --recompute-num-layers=9 --x\n", OUT, f"{RUN} --bf16 --x\n"),
        (f'{RUN} --bf16 "--recompute-num-layers" 9 --x\n', OUT, f"{RUN} --bf16 --x\n"),
        (f"{RUN} --bf16 '--recompute-num-layers' '9'\n", OUT, f"{RUN} --bf16\n"),
        (f"{RUN} --bf16 --recompute-num-layers=9\n", FOUR, f"{RUN} --bf16 --recompute-num-layers=4\n"),
        (f"{RUN} --bf16 \\\n  --recompute-num-layers 9 \\\n  --x\n", OUT, f"{RUN} --bf16 \\\n  --x\n"),
        (f"{RUN} --bf16 \\\n  --recompute-num-layers 9\necho\n", OUT, f"{RUN} --bf16\necho\n"),
        (f"{RUN} --bf16 \\\n --recompute-num-layers \\\n  9 \\\n --x\n", OUT, f"{RUN} --bf16 \\\n --x\n"),
        (f"N=9\n{RUN} --bf16 --recompute-num-layers $N\n", FOUR, f"N=4\n{RUN} --bf16 --recompute-num-layers $N\n"),
        (f"N=9\n{RUN} --bf16 --recompute-num-layers ${{N}} --x\n", OUT, f"N=9\n{RUN} --bf16 --x\n"),
        (f"{RUN} --bf16 --recompute-num-layers ${{N:-9}}\n", FOUR, f"{RUN} --bf16 --recompute-num-layers ${{N:-4}}\n"),
        (f'A="--recompute-num-layers 9"\n{RUN} --bf16 $A\n', OUT, f'A=""\n{RUN} --bf16 $A\n'),
        (f'A=(--bf16\n  --recompute-num-layers "9"\n)\n{RUN} ${{A[@]}}\n', OUT, f"A=(--bf16\n)\n{RUN} ${{A[@]}}\n"),
        (f'A="\n --bf16 \\\n --recompute-num-layers 9\n"\n{RUN} $A\n', OUT, f'A="\n --bf16\n"\n{RUN} $A\n'),
        (f'A="\n --bf16\n --recompute-num-layers 9\n"\n{RUN} $A\n', OUT, f'A="\n --bf16\n"\n{RUN} $A\n'),
        (
            f'A="\n --bf16 \\\n --recompute-num-layers 9\n"\n{RUN} $A\n',
            METHOD,
            f'A="\n --bf16 \\\n --recompute-method block \\\n --recompute-num-layers 9\n"\n{RUN} $A\n',
        ),
        (
            f"A=(\n --bf16\n --recompute-num-layers 9\n)\n{RUN} ${{A[@]}}\n",
            METHOD,
            f"A=(\n --bf16\n --recompute-method block\n --recompute-num-layers 9\n)\n{RUN} ${{A[@]}}\n",
        ),
        (
            f'{RUN} "--bf16" "--recompute-num-layers" "9"\n',
            METHOD,
            f'{RUN} "--bf16" --recompute-method block "--recompute-num-layers" "9"\n',
        ),
    ],
)
def test_words_are_edited_where_they_are(text: str, change: ArgumentChange, expected: str) -> None:
    assert changed(text, change) == expected


def test_a_text_with_brackets_is_put_in_quotes() -> None:
    before = f"{RUN} --bf16 --pipeline-num-transformer-layers '[[1],[2]]'\n"
    change = ArgumentChange(1, "--pipeline-num-transformer-layers", ("[[2],[1]]",))
    assert changed(before, change) == before.replace("[[1],[2]]", "[[2],[1]]")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"N=9\n{RUN} --bf16 --recompute-num-layers $N --num-layers $N\n", "shared"),
        (f"export N=9\n{RUN} --bf16 --recompute-num-layers $N\n", "shared"),
        (f"N=9\n{RUN} --bf16 --recompute-num-layers $N\npython other.py $N\n", "shared"),
        (f"N=$((3*3))\n{RUN} --bf16 --recompute-num-layers $N\n", "calculated"),
        (f'A="--bf16 --recompute-num-layers 9"\n{RUN} $A --a=$A\n', "shared"),
    ],
)
def test_what_decides_about_more_is_left(text: str, reason: str) -> None:
    with pytest.raises(EditRefusedError) as refusal:
        changed(text, FOUR)
    assert refusal.value.message.id == f"edits.script.{reason}"


def test_programs_that_take_the_same_words_get_the_same_change() -> None:
    text = f'A="--bf16 --recompute-num-layers 9"\n{RUN} $A\n{RUN} $A --x\n'
    assert changed(text, FOUR, 1) == text.replace("9", "4")


def test_a_file_that_is_read_is_left(tmp_path: Path) -> None:
    (tmp_path / "common.sh").write_text("N=9\n", "utf-8")
    script = read_launches(tmp_path / "x.sh", f"source common.sh\n{RUN} --bf16 --recompute-num-layers $N\n")
    with pytest.raises(EditRefusedError) as refusal:
        with_change(script, RELEASE, 0, FOUR)
    assert str(refusal.value.message.params["file"]) == "common.sh"
    assert argument_names(with_change(script, RELEASE, 0, OUT).file.text) == ["--bf16"]


def random_script(random: Random) -> tuple[str, int]:
    """Return a script in one of many forms, and the number of its program's arguments."""
    names = random.sample(NAMES, random.randint(2, len(NAMES)))
    above, behind, inside = list[str](), list[str](), list[str]()
    for number, name in enumerate(names):
        value = str(random.randint(1, 99))
        if random.random() < 0.4:
            above.append(f"V{number}={random.choice((value, repr(value)))}")
            value = random.choice((f"$V{number}", f"${{V{number}}}", f'"$V{number}"'))
        words = name if name in SWITCHES else f"{name}{random.choice((' ', ' ', '=', '  '))}{value}"
        (inside if random.random() < 0.6 else behind).append(words)
    quoteless = [words.replace('"', "") for words in inside]
    form = random.randint(0, 3)
    if form == 0:
        lines, behind = [*above, f'A="{" ".join(quoteless)}"'], ["$A", *behind]
    elif form == 1:
        mark = random.choice((" \\", ""))
        lines = [*above, f'A="\n{"".join(f"    {one}{mark}{chr(10)}" for one in quoteless)}"']
        behind.insert(random.randint(0, len(behind)), "$A")
    elif form == 2:
        lines = [*above, "A=(", *(f"  {one}" for one in inside), ")"]
        behind.insert(random.randint(0, len(behind)), '"${A[@]}"')
    else:
        lines, behind = above, [*inside, *behind]
    between = random.choice((" ", " \\\n    "))
    lines += [
        f"torchrun 0 pretrain_gpt.py{between}{between.join(behind)}",
        f"python 1 {random.choice(('$A', 'x'))}",
        "echo",
    ]
    return "\n".join(lines) + "\n", len(names)


@pytest.mark.slow
@pytest.mark.skipif(BASH is None, reason="bash is not installed")
def test_bash_gives_what_was_asked_for(tmp_path: Path) -> None:
    random = Random(20261122)  # noqa: S311 - cases, no secrets
    made = 0
    for _ in range(60):
        text, count = random_script(random)
        text = text.replace("torchrun 0", "torchrun --nproc_per_node 0")
        at = random.randrange(count)
        name = argument_names(text)[at]
        values = None if random.random() < 0.5 or name in SWITCHES else (str(random.randint(100, 999)),)
        change = ArgumentChange(at, name, values)
        if random.random() < 0.3:
            change = ArgumentChange(at, "--recompute-method", ("block",), new=True)
        try:
            after = changed(text, change)
        except EditRefusedError:
            continue
        made += 1
        before, behind = calls_of(text, tmp_path), calls_of(after, tmp_path)
        assert behind["1"] == before["1"]
        assert _pairs(behind["--nproc_per_node"][0][2:]) == _expected(
            _pairs(before["--nproc_per_node"][0][2:]), change
        ), text
    assert made > 40


def _pairs(words: list[str]) -> list[list[str]]:
    found: list[list[str]] = []
    for word in words:
        if word.startswith("--"):
            found.append(word.split("=", 1))
        else:
            found[-1].append(word)
    return found


def _expected(pairs: list[list[str]], change: ArgumentChange) -> list[list[str]]:
    wanted = [] if change.values is None else [[change.name, *change.values]]
    return [*pairs[: change.at], *wanted, *pairs[change.at + (not change.new) :]]


def written(script: str) -> list[tuple[str, str | None]]:
    return [(one.assignment.name, one.text) for one in assignments(script)]


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("A=1", [("A", "1")]),
        ("export A='1 2' B=\"3\"", [("A", "1 2"), ("B", "3")]),
        ("A=1 B= msrun train.py", [("A", "1"), ("B", "")]),
        ("A=$B; C=x${D}y; E=$(f); F=`g`; G=$((1))", [("A", None), ("C", None), ("E", None), ("F", None), ("G", None)]),
        ("A=(1 2)", [("A", None)]),
        ("env A=1 B='2' msrun C=3", [("A", "1"), ("B", "2")]),
        ("env -i A=1 msrun", []),
        ("env A=$B msrun", [("A", None)]),
        ("env", []),
        ("env 'A=1' msrun", []),  # a quoted word is not read as an assignment
        ("echo A=1; msrun B=2", []),
        ("declare -x A=1; local B=2; readonly C=3", [("A", "1"), ("B", "2"), ("C", "3")]),
        ("# A=1", []),
        ("f() { A=1; }; if x; then B=2; else C=3; fi; for i in 1; do D=4; done", [("A", "1"), ("B", "2"), ("C", "3"), ("D", "4")]),
    ],
)  # fmt: skip
def test_what_is_there(script: str, found: list[tuple[str, str | None]]) -> None:
    assert written(script) == found


@pytest.mark.parametrize(
    ("script", "extends"),
    [
        ("A=$A:x", True),
        ("A=x:${A:-y}", True),
        ("A=${B:-$A}", True),
        ("A=${B:-$C}", False),
        ("A+=x", True),
        ("A=($B $A)", True),
        ("A=$AB", False),
        ("env A=$A:x msrun", True),
    ],
)
def test_what_builds_upon_the_old_value(script: str, extends: bool) -> None:  # noqa: FBT001
    assert [one.extends for one in assignments(script)] == [extends]


def test_branches_are_distinguished_and_nested() -> None:
    script = "A=1\nif x; then B=2; { C=3; }; if y; then D=4; fi; else E=5; fi\ncase z in a) F=6;; b) G=7;; esac\nH=8"
    block = {one.assignment.name: one.block for one in assignments(script)}
    assert block["A"] == block["H"] == ()
    assert block["B"] == block["C"][:1] == block["D"][:1]
    assert len({block[name] for name in "BDEFG"}) == 5
    assert all(len(block[name]) == 1 for name in "BEFG")


def test_they_are_in_the_order_of_the_script_at_their_places() -> None:
    script = "env Z=1 Y=2 msrun\nX=3 W='4' f\n"
    found: list[Assignment] = assignments(script)
    assert [one.assignment.name for one in found] == ["Z", "Y", "X", "W"]
    assert [script[one.assignment.place.start : one.assignment.place.end] for one in found] == [
        "Z=1",
        "Y=2",
        "X=3",
        "W='4'",
    ]
