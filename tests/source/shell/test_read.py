"""Test the programs that scripts start, their positions and what is unknown; Windows line ends, ``.bash``, and the release."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.cli import dryrun
from ms_tune.dialects.megatron.detect import release_taking
from ms_tune.dryrun.command_tasks import name_of
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.job.script import ScriptJob
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.lint.runner import SUFFIXES
from ms_tune.normalize.script import normalize_script
from ms_tune.source import SCRIPTS
from ms_tune.source.shell.read import Launch, Launches, read_launches, restore_line_ends, to_unix_lines
from ms_tune.source.shell.values import Reason
from ms_tune.text import Language
from tests.jobs import commands_in

SCRIPT = """\
#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
NPUS=8
NNODES=2
WORLD_SIZE=$(($NPUS*$NNODES))
TP=4
DISTRIBUTED_ARGS="
    --worker_num $WORLD_SIZE \\
    --local_worker_num=$NPUS \\
    --join=False
"
GPT_ARGS="
    --tensor-model-parallel-size ${TP} \\
    --pipeline-model-parallel-size ${PP:-2} \\
    --sequence-parallel
"
msrun $DISTRIBUTED_ARGS pretrain_gpt.py $GPT_ARGS --load $LOAD_DIR --ai-framework mindspore | tee logs/a.log
"""


def launches(text: str) -> Launches:
    return read_launches(Path("run.sh"), text)


def one(text: str) -> Launch:
    (found,) = launches(text).launches
    return found


def texts(text: str) -> list[str | None]:
    return [argument.text for argument in one(text).arguments]


def test_a_launch_script() -> None:
    found = one(SCRIPT)
    assert found.launcher.name == "msrun"
    assert found.processes == 16
    assert {name: given and given.text for name, given in found.options.items()} == {
        "worker_num": "16",
        "local_worker_num": "8",
        "join": "False",
    }
    assert found.program is not None
    assert found.program.text == "pretrain_gpt.py"
    words = [argument.text for argument in found.arguments]
    assert words[:5] == [
        "--tensor-model-parallel-size",
        "4",
        "--pipeline-model-parallel-size",
        "2",
        "--sequence-parallel",
    ]
    assert words[5:] == ["--load", None, "--ai-framework", "mindspore"]
    unknown = found.arguments[6].unknown
    assert unknown is not None
    assert (unknown.reason, unknown.name, found.arguments[6].open) == (Reason.ENVIRONMENT, "LOAD_DIR", True)
    assert list(found.environment) == ["CUDA_DEVICE_MAX_CONNECTIONS"]
    assert not found.conditional


def test_arguments_know_where_they_stand_and_through_what_they_came() -> None:
    found = one(SCRIPT)
    size = found.arguments[1]
    assert (size.place.span.line, size.place.span.column, size.via) == (6, 4, ("TP", "GPT_ARGS"))
    assert SCRIPT[size.place.start : size.place.end] == "4"
    name = found.arguments[2]
    assert (name.place.span.line, SCRIPT[name.place.start : name.place.end]) == (14, "--pipeline-model-parallel-size")
    assert found.arguments[3].place.span.line == 14
    for argument in found.arguments:
        for piece in argument.pieces:
            assert not piece.exact or SCRIPT[piece.place.start : piece.place.end] == piece.text


@pytest.mark.parametrize(
    ("command", "launcher", "program", "processes"),
    [
        ("torchrun --nproc_per_node 8 --nnodes=2 p.py --a", "torchrun", "p.py", 16),
        ("torchrun --nproc-per-node=4 p.py --a", "torchrun", "p.py", 4),
        ("torchrun --nnodes 1:4 --standalone p.py --a", "torchrun", "p.py", None),
        ("torchrun --nproc_per_node gpu p.py --a", "torchrun", "p.py", None),
        ("python -m torch.distributed.launch --nproc_per_node 8 p.py --a", "torch.distributed.launch", "p.py", 8),
        ("python3.11 -u p.py --a", "python", "p.py", None),
        ("nohup /usr/bin/python3 -W ignore p.py --a > log 2>&1 &", "python", "p.py", None),
        ("msrun p.py --a", "msrun", "p.py", 8),
        ("msrun --worker_num $N p.py --a", "msrun", "p.py", None),
        ("msrun $ARGS $BASE/p.py --a", "msrun", None, None),
        ("env A=1 msrun --worker_num=2 p.py --a", "msrun", "p.py", 2),
        ("IP='your master node ip'; ARGS=\"--master_addr $IP\"; torchrun $ARGS p.py --a", "torchrun", "p.py", None),
        ("mpirun -n 8 python p.py --a", "mpirun", "p.py", None),
        ("deepspeed --num_gpus 8 p.py --a", "deepspeed", "p.py", None),
        ("ssh host python p.py --a", "ssh", "p.py", None),
    ],
)
def test_launchers(command: str, launcher: str, program: str | None, processes: int | None) -> None:
    found = one(command)
    assert (found.launcher.name, found.program and found.program.text, found.processes) == (
        launcher,
        program,
        processes,
    )
    assert [argument.text for argument in found.arguments] == ["--a"]


@pytest.mark.parametrize(
    "command", ["echo python p.py", "pip install ray", "grep msrun log", "# msrun p.py", "A='msrun p.py'"]
)
def test_what_starts_nothing(command: str) -> None:
    assert launches(command).launches == ()


def test_a_program_that_is_given_as_code_has_no_file() -> None:
    assert one("python -c 'import mindspore' x").program is None


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("python p.py $(date)", Reason.COMMAND),
        ("python p.py `date`", Reason.COMMAND),
        ("python p.py $1", Reason.ARGUMENT),
        ("python p.py $HOME", Reason.ENVIRONMENT),
        ("python p.py ${HOME:-x}", Reason.ENVIRONMENT),
        ("python p.py ~/x", Reason.ENVIRONMENT),
        ("python p.py *.json", Reason.PATTERN),
        ("A=x.y; python p.py ${A%@(.y)}", Reason.EXPANSION),
        ("f() { local -n out=$1; out=8; }; f N; python p.py $N", Reason.ENVIRONMENT),  # names of names are not followed
        ("python p.py {1..100000}", Reason.EXPANSION),
        ("A=x; python p.py ${A^^}", Reason.EXPANSION),
        ("A=B; python p.py ${!A}", Reason.EXPANSION),
        ("A=1; ((A += 2)); python p.py $A", Reason.ARITHMETIC),
        ("for ((A = 0; A < 2; A++)); do :; done; python p.py $A", Reason.LOOP),
        ("A=1; while [ -d x ]; do A=2; done; python p.py $A", Reason.LOOP),
        ("python p.py $((1 / 0))", Reason.ARITHMETIC),
        ("python p.py $((1.5 * 2))", Reason.ARITHMETIC),
        ("read A; python p.py $A", Reason.INPUT),
        ("for A in 1 $1; do :; done; python p.py $A", Reason.LOOP),
        ("if [ -d x ]; then A=1; else A=2; fi; python p.py $A", Reason.CONDITION),
        ("A=1; source missing.sh; python p.py $A", Reason.FILE),
        ("A=1; eval $(date); python p.py $A", Reason.COMMAND),
        ("A=1; eval 'A=2;;'; python p.py $A", Reason.COMMAND),
        ("f() { f; }; A=1; f; python p.py $A", Reason.BOUND),
    ],
)
def test_what_cannot_be_known_is_named(script: str, reason: Reason) -> None:
    (argument,) = one(script).arguments
    assert argument.text is None
    assert argument.unknown is not None
    assert argument.unknown.reason is reason


def test_both_branches_are_followed_where_nobody_knows_which() -> None:
    found = launches("if [ -d x ]; then msrun a.py; else msrun b.py; fi; msrun c.py").launches
    assert [(one.program and one.program.text, one.conditional) for one in found] == [
        ("a.py", True),
        ("b.py", True),
        ("c.py", False),
    ]
    (found_,) = launches("A=1; if [ $A -eq 1 ]; then msrun a.py; else msrun b.py; fi").launches
    assert (found_.program and found_.program.text, found_.conditional) == ("a.py", False)


def test_sourced_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "run.sh").write_text("A=1\nsource conf/env.sh\nmsrun p.py $A $B\n")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "env.sh").write_text("A=2\nB=3\n")
    found = read_launches(tmp_path / "inner" / "run.sh")
    (launch,) = found.launches
    assert [argument.text for argument in launch.arguments] == ["2", "3"]
    assert launch.arguments[1].place.file.path.name == "env.sh"
    assert [path.name for path in found.read_from] == ["env.sh"]


def test_a_file_that_sources_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"source {tmp_path}/run.sh\nmsrun p.py\n")
    assert read_launches(tmp_path / "run.sh").launches
    # Followed to the end, it runs itself 2^16 times.
    (tmp_path / "twice.sh").write_text("bash twice.sh & source twice.sh\nmsrun p.py\n")
    assert 1 < len(read_launches(tmp_path / "twice.sh").launches) < 16


def test_scripts_of_an_environment_change_its_variables_alone() -> None:
    text = "TP=8\nPYTHONPATH=a\nsource /usr/local/Ascend/ascend-toolkit/set_env.sh\nmsrun p.py $TP $PYTHONPATH"
    assert texts(text) == ["8", None]


def test_what_is_broken_does_not_hide_the_rest() -> None:
    found = launches("A=1\nfi ) ;;\n  | tee x\nmsrun p.py $A\n")
    assert [problem.offset for problem in found.problems] == [4, 14]
    assert [argument.text for argument in found.launches[0].arguments] == ["1"]


def test_a_missing_script_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read_launches(tmp_path / "none.sh")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "$(" * 5000,
        '"$(' * 5000,
        "${A:-" * 5000 + "}" * 5000,
        "a() " * 5000 + ":",
        "if " * 5000,
        "A=$((" + "(" * 5000 + "1" + ")" * 5000 + "))\nmsrun p.py $A",
        "A=$((" + "-" * 5000 + "1))\nmsrun p.py $A",
        "A=B; B=A; msrun p.py $((A))",
        "f() { f; f; }; f",
        "[" * 100_000,
        "f() { for i in 1; do f; done; }; f; msrun p.py",
        "A=1; " + "".join(f"if [ -d x ]; then A=$A{number}; fi\n" for number in range(300)),
        "A=x\n" + 'A="$A $A"\n' * 40 + "B=($A $A)\n" * 40 + 'msrun "${B[@]}" ' * 40,
        "cat <<EOF\n" * 2000,
        "".join(f"for a{number} in $x; do b{number}=$a{number}; " for number in range(25)) + "done; " * 25,
        "find " + "python " * 20000,
        "[[ x =~ " + "(a)" * 5000 + " ]]",
        "[[ " + "( " * 5000 + "x" + " )" * 5000 + " ]]",
        "[[ " + "! " * 5000 + "x ]]",
        "msrun p.py " + "{a,b}" * 5000 + " " + "{" * 5000 + "a,b}" + "{1..900}" * 9,
        "A=" + "a" * 20000 + "; B=${A##" + "*a" * 2000 + "b}; msrun p.py $B",
    ],
    ids=lambda text: text[:12],
)
@pytest.mark.slow
def test_bounds(text: str) -> None:
    start = time.process_time()
    launches(text)
    assert time.process_time() - start < 20  # 6 at most on an idle machine


@pytest.mark.slow
def test_a_value_that_grows_without_end_is_unknown() -> None:
    (argument,) = one("A=x; " + 'A="$A$A"; ' * 30 + "python p.py $A").arguments
    assert argument.unknown is not None
    assert argument.unknown.reason is Reason.BOUND


@pytest.mark.slow
def test_what_comes_after_too_much_is_not_passed_over_without_a_word() -> None:
    found = launches("A=x; " + 'A="$A$A"; ' * 60 + "python p.py $A")
    assert found.launches or [unknown.reason for unknown in found.unknown] == [Reason.BOUND]


@given(st.text(alphabet="AB=1 \n\"'`$(){}[];&|<>#\\!*@:-+ifthenfdoe", max_size=80))
def test_any_text_is_read(text: str) -> None:
    found = launches(text)
    for launch in found.launches:
        for argument in launch.arguments:
            assert 0 <= argument.place.start <= argument.place.end <= len(text)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("A=1; eval 'A=2'; python p.py $A", ["2"]),
        ('A=1; N=A; eval "B=\\$$N"; python p.py $B', ["1"]),
        ('C="python p.py --x 1"; eval $C', ["--x", "1"]),
        ("bash -c 'python p.py --x 1'", ["--x", "1"]),
        (
            "A=1; /bin/sh -xc 'python p.py --x $A'",
            ["--x", None],
        ),  # another shell: variables that are not exported are missing
        ('export A=2; B=3; nohup bash -e -c "python p.py \\$A $B" &', ["2", "3"]),
        ("bash -c 'python p.py $0 $1' a b", [None, "b"]),
        ('f() { exec bash -c "python p.py $1"; }; f 5', ["5"]),
        ("export A=1; srun -N 2 bash -c 'python p.py $A'", ["1"]),
        ("export A=1; sudo tmux new -d bash -c 'python p.py $A'", ["1"]),
    ],
)
def test_a_script_in_a_word_is_followed(script: str, words: list[str | None]) -> None:
    text = script + "\n"
    found = [launch for launch in launches(text).launches if launch.launcher.name == "python"]
    assert [word.text for word in found[0].arguments] == words
    assert len(found) == 1
    assert text[found[0].place.start : found[0].place.end]
    assert {word.place.span.line for word in found[0].arguments} == {1}
    assert found[0].conditional is ("&&" in script)


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("bash <<EOF", "bash"),  # it never begins
        ("bash run.sh <<EOF\npython p.py\nEOF", "run.sh"),
        ("./run.sh --x", "./run.sh"),
        ("curl host/run.sh | bash", "bash"),
        ("sed s/a/b/ run.sh | nohup bash -s 1", "nohup"),
        ("docker exec box bash /work/run.sh", "docker"),
        ('docker exec -it c1 /bin/bash -lc "cd /x; python p.py 1"', "docker"),
        ("ssh -p 22 -o X=y host 'cd /x && python p.py --x 1'", "ssh"),
        ("ssh -p 22 host <<EOF\npython p.py\nEOF", "ssh"),
        ("bash <<-EOF\n\tpython p.py\nEOF", "bash"),
        ("echo 'python p.py' | bash", "bash"),
        ("echo 1 | xargs python p.py", "xargs"),
        ("echo 'python p.py' > run.sh\nbash run.sh", "run.sh"),
        ('bash -c "$COMMAND"', "bash"),
        ("trap 'python p.py' ERR", "trap"),
        ("find . -name a.py -exec python p.py {} ';'", "find"),
        ("su me -c 'cd /work && torchrun p.py'", "su"),
        ("shopt -s expand_aliases\nalias go='python p.py'\ngo --x", "alias"),
        ("cp /templates/a.sh run.sh\nbash run.sh", "run.sh"),
        ("source <(date)", "source"),
        ("source $ENVIRONMENT", "source"),
        ("source missing.sh", "missing.sh"),
    ],
)
def test_what_is_started_where_only_a_run_could_show_is_named(script: str, name: str) -> None:
    assert [unknown.name for unknown in launches(script + "\n").unknown] == [name]


@pytest.mark.parametrize(
    "script",
    [
        'bash -c "$(cat x)"',
        "bash x.sh python p.py",
        "bash -c 'python p.py \"'",
        "ssh host",
        "bash -c",
        "bash",
        "A='ab'; bash -c \"python p.py '$1' \"",
    ],
)
def test_what_is_no_known_script_is_not_followed(script: str) -> None:
    assert [launch for launch in launches(script).launches if launch.launcher.name == "python"] == []


def test_scripts_in_words_in_each_other_end() -> None:
    assert launches("A='eval $A'; eval $A\n").unknown
    assert not launches('export A=\'bash -c "$A"\'; bash -c "$A"\n').launches


def test_the_folder_of_a_program_hides_no_option() -> None:
    (found,) = launches("base=$(pwd)\ntorchrun --nproc_per_node 4 --nnodes 2 $base/train.py --x 1\n").launches
    assert found.processes == 8
    assert [word.text for word in found.arguments] == ["--x", "1"]
    (unsure,) = launches("torchrun --nproc_per_node 4 $ARGS train.py --x 1\n").launches
    assert unsure.processes is None


@pytest.mark.slow
def test_loops_in_each_other_are_followed_to_the_innermost() -> None:
    loops = "".join(f"for a{number} in $x; do b{number}=$a{number}; " for number in range(20))
    (found,) = launches(loops + "msrun p.py $b3; " + "done; " * 20).launches
    assert found.conditional
    assert found.arguments[0].text is None


UNIX = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPT_ARGS="
    --num-layers 8 --hidden-size 64 --num-attention-heads 8 \\
    --seq-length 4096 --max-position-embeddings 4096\\
    --recompute-norm-num-layers 2 \\
    --recompute-granularity full --recompute-method block \\
    --recompute-num-layers 12 \\
    --bf16
"
for NODE in one; do
  msrun --worker_num 8 pretrain_gpt.py \\
    $GPT_ARGS \\
    --micro-batch-size 1 \\
    --micro-batch-size 2
done
"""
WINDOWS = UNIX.replace("\n", "\r\n")
PATH = Path("pretrain.sh")


def words(text: str) -> list[str | None]:
    (launch,) = read_launches(PATH, text).launches
    return [word.text for word in launch.arguments]


def test_it_is_read_as_it_is_meant() -> None:
    assert words(WINDOWS) == words(UNIX)
    (reported,), (meant,) = normalize_script(ScriptJob(PATH, WINDOWS)), normalize_script(ScriptJob(PATH, UNIX))
    assert reported.plan is not None
    assert meant.plan is not None
    assert reported.plan.layers == meant.plan.layers
    assert [one.id for one in reported.plan.problems] == [*(one.id for one in meant.plan.problems), "carriage-returns"]


def test_it_keeps_them_when_it_is_mended() -> None:
    changed = []
    for text in (UNIX, WINDOWS):
        (source,) = commands_in(PATH, text, "2.3")
        for finding in lint(source, Dialect.MEGATRON, built_in(Dialect.MEGATRON), "2.3"):
            edits = finding.fix.edits if finding.fix else ()
            changed += [text[: edit.start] + edit.text + text[edit.end :] for edit in edits]
    half = len(changed) // 2
    assert half == 3
    assert [one.replace("\n", "\r\n") for one in changed[:half]] == changed[half:]


@pytest.mark.parametrize("seed", range(40))
def test_lines_that_nobody_touched_stay_as_they_were(seed: int) -> None:
    """For any mixture of line ends."""
    random = Random(seed)  # noqa: S311 - cases, no secrets
    ends = [random.choice(("\n", "\r\n", " \\\n", "\\\r\n", "  \r\n", "\u2028\r\n")) for _ in range(12)]
    lines = [f"echo {number}{end}" for number, end in enumerate(ends)] + ["exit"]
    written = "".join(lines)
    meant = to_unix_lines(written)
    assert len(meant) == len(written)
    assert restore_line_ends(written, meant) == written
    gone, new = random.randrange(12), random.randrange(12)
    kept = meant.split("\n")
    del kept[gone]
    kept[new] = kept[new].replace("echo", "printf")
    expected = [line for at, line in enumerate(lines) if at != gone]
    made = restore_line_ends(written, "\n".join(kept))
    assert made.replace("printf", "echo").replace(" \\", "\\").replace("\r", "").replace(" \n", "\n") == "".join(
        expected
    ).replace(" \\", "\\").replace("\r", "").replace(" \n", "\n")
    untouched = [line for at, line in enumerate(expected) if at != new]
    assert all(line in made for line in untouched)


@pytest.mark.parametrize(
    ("arguments", "release"),
    [
        ("--num-layers 8", "2.3"),
        ("--num-layers 8 --use-fused-lightning-indexer", "26.1"),  # 26.0 has it, too
        ("--num-layerz 8", "2.3"),  # no release has it
        ("--num-layerz 8 --use-fused-lightning-indexer --use-sparse-flash-attn", "26.1"),
        ("--moe-model-type megatron_moe", "2.3"),  # no parser that ran accepts it; 2.1's did not run
    ],
)
def test_the_default_unless_another_takes_more(tmp_path: Path, arguments: str, release: str) -> None:
    script = tmp_path / "pretrain.sh"
    script.write_text(f"msrun --worker_num 8 pretrain_gpt.py --ai-framework mindspore {arguments}\n")
    assert release_taking(read_launches(script)) == release


def test_only_among_those_that_come_into_question(tmp_path: Path) -> None:
    script = tmp_path / "pretrain.sh"
    script.write_text("torchrun pretrain_gpt.py --use-fused-lightning-indexer\n")
    assert release_taking(read_launches(script), ("2.2", "2.3", "26.0")) == "26.0"


@pytest.mark.parametrize("suffix", SCRIPTS)
def test_dryrun_runs_a_script_and_lint_finds_it(suffix: str) -> None:
    name = f"pretrain{suffix}"
    parsed = dryrun.build_parser(Language.EN).parse_args([name])
    assert (parsed.config, parsed.command) == (None, ("bash", name))
    assert name_of(("bash", name)) == name
    assert suffix in SUFFIXES


def test_no_other_module_says_which_they_are() -> None:
    package = Path(dryrun.__file__).parents[1]
    texts = {path: path.read_text("utf-8") for path in package.rglob("*.py")}
    assert [path.relative_to(package).as_posix() for path, text in texts.items() if '".bash"' in text] == [
        "source/__init__.py"
    ]
