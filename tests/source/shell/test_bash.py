"""Compare the reader of scripts with bash: syntax one form at a time, unusual scripts, and random ones, with stand-ins for the launchers."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from itertools import permutations
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from ms_tune.source.shell.follow import Follower
from ms_tune.source.shell.parse import parse
from ms_tune.source.shell.syntax import File
from tests.source.shell.scripts import Scripts

if TYPE_CHECKING:
    from ms_tune.source.shell.commands import Started
    from ms_tune.source.shell.values import Argument


BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="bash is not installed")

# In each of these, the program's arguments follow from the script.
KNOWN = r"""
msrun 1 $((1 + 2 * 3 - 4 / 2 % 5)) $((2 ** 3 ** 2)) $((-7 / 2)) $((-7 % 3)) $((7 / -2))
msrun 1 $((1 < 2)) $((2 <= 1)) $((2 > 1)) $((1 >= 1)) $((1 == 2)) $((1 != 2)) $((1 && 0)) $((0 || 2))
msrun 1 $((0x1F)) $((017)) $((0XfF)) $((9223372036854775807 + 1))
let a=3+4 b=a*2; msrun 1 x
((a = 3)); ((a > 2)) && msrun 1 $a; ((a > 5)) || msrun 2 no
if ((0)); then msrun 1 a; else msrun 2 b; fi
set -- a 'b c' d; msrun 1 "$@" $# $1 "$2" ${3}; shift; msrun 2 "$@" $#; shift 2; msrun 3 "$@" $#
set -- -x a; msrun 1 "$@"; set -e -- b; msrun 2 "$@"; set -o pipefail; msrun 3 "$@"
set -- a b; shift 5; msrun 1 "$@"; shift 0; msrun 2 "$@"
a=1 b=2; unset a; msrun 1 x$a y$b ${a-none} ${a:-empty} ${b+there} ${a+not}
f() { msrun 1 "$1" "$#"; }; f one two; unset -f f; f gone
declare -a list=(x 'y z'); list+=(w); list[5]=v; msrun 1 "${list[@]}" ${#list[@]} "${list[1]}" ${list[0]} "${list[*]}"
f() { local a=2 b; a+=3; msrun 1 $a "[$b]"; }; a=9; f; msrun 2 $a
a=x; a+=y; a+=(z); msrun 1 "${a[@]}"
[ 3 -eq 3 ] && msrun 1; [ 3 -ne 3 ] || msrun 2; [ 2 -lt 3 ] && msrun 3; [ 3 -le 2 ] || msrun 4; [ 4 -gt 3 ] && msrun 5; [ 3 -ge 4 ] || msrun 6
[ -z "" ] && msrun 1; [ -n "" ] || msrun 2; [ "" ] || msrun 3; [ x ] && msrun 4; [ ! x ] || msrun 5; test a = a && msrun 6; test a != a || msrun 7
[[ a == a ]] && msrun 1; [[ a != b ]] && msrun 2; [[ ! a == b ]] && msrun 3; [[ -z "" && x ]] && msrun 4; [[ "" || y ]] && msrun 5; [[ a == "a*" ]] || msrun 6
true && msrun 1; false || msrun 2; : && msrun 3; ! false && msrun 4; ! true || msrun 5; false && msrun 6
msrun 1 <<END
text $a
END
msrun 1 a > /dev/null 2>&1 < /dev/null; msrun 2 b &> /dev/null; msrun 3 c | cat; msrun 4 d & wait
wait; msrun 1 x; exit 0; msrun 2 never
if false; then msrun 1; elif true; then msrun 2; else msrun 3; fi
msrun 1 a\
b c; msrun 2 \
 d
n=A; export "$n=1"; declare "B=$n"; msrun 1 "$A" "$B"
coproc cat < /dev/null; msrun 1 a; wait
case abc in a*) msrun 1 first;; abc) msrun 2 second;; esac
a=path/to/file.tar.gz; msrun 1 ${a##*/} ${a%.*} ${a%%.*} ${a#*/} ${#a} ${a/to/from} ${a//t/T} ${a:5:2} ${a:5} ${a: -2}
a=(x.y z.y w); msrun 1 "${a[@]:1}" x; msrun 2 "${!a[@]}"; msrun 3 "${a[@]%.y}"; msrun 4 "${a[*]:1}" "${!a[*]}"
msrun 1 {a,b}{1..3} x{,y} {3..1} {a..c} '{a,b}' "{a,b}" {single} {1..10..4} {01..3} {-01..2} {1..a} {a,{c,d}e}f {a\,b,c} {,} {{a,b} {a,b}} {} {,a} {1..3,x} {"a b",c}
A='p q'; msrun 1 x{$A,b} "$A"{1..2} {$A..3} ${A}{a,b} {"$A",${A%q}}; B=({1..4} x{1,2}); msrun 2 "${B[@]}" ${#B[@]}; C={1,2}; msrun 3 $C; D=; export C={1,2} D+={x,y}; msrun 4 $C $D; E=; msrun 5 ${E//*/y} ${E/?/y}
msrun 1 {-2..2} {+1..+3} {c..a..2} {1..4..-2} {1..3..0} {{1,2},{3,4}} {0001..2} a{b,c {1..2}{3..4}{a,b} {1...3} pre-{fix,}-post {x,y}.json
for i in {1..3}; do msrun $i --i $i; done; for i in {a,b} $(seq 2 3); do msrun 9 $i; done; for i in `seq 5 -2 1`; do msrun 10 $i; done
msrun 1 $(seq 3) "$(seq 2 4)" $(seq 1 2 5) $(seq 5 1) $(seq 5 -2 1) $(seq 01 3) $(seq -2 1) $(seq +1 2) x$(seq 2)y
P=/data/qwen/model.tar.gz; msrun 1 $(basename $P) "$(basename $P .gz)" $(dirname $P) `basename a/b/` $(basename a.py .py) $(basename .py .py) $(dirname a) $(dirname a//b) $(dirname /a) $(basename "$(dirname "$P")")
N=3; msrun 1 $(seq 1 $N) $(seq $((N - 1))); D=$(dirname a/b/c.sh)/data; msrun 2 $D; seq() { echo own; }; msrun 3 $(seq 2)
"""
# In each of these, something depends on values outside the script, or on unsupported syntax.
UNKNOWN = r"""
a=b; b='1 + 2'; msrun 1 $((a * 2)) $((unset_one + 1)) $(( )) $(((1 + 2) * 3))
export A=1; export -n A; readonly B=2; declare -r C=3; declare -x D=4; msrun 1 $A $B $C $D
case "$none" in "") msrun 1 empty;; *) msrun 2;; esac
msrun 1 $'tab\there' $'\x41\u00e9' "a\"b\$c" 'it'"'"'s' a\ b ""
f() { return 3; }; f || msrun 1 $?; f; msrun 2 x
(a=1; msrun 1 in $a); msrun 2 out$a; { a=2; }; msrun 3 out$a
a=1 msrun 1 "$a"; a=2; a=3 msrun 2 "$a"; msrun 3 "$a"
a='x y'; msrun 1 $a "$a" ${a}z; IFS=,; b=p,q; msrun 2 $b "$b"
msrun 1 $((010 + 0)) $((8#17)) || true
read a b; msrun 1 "$a" "$b"
read -a list; msrun 1 "${list[@]}"
mapfile -t lines < /dev/null; msrun 1 "${lines[@]}"
printf -v a '%03d' 7; msrun 1 "$a"
a=$(hostname 2> /dev/null); msrun 1 "$a" x
msrun 1 $RANDOM $$ "$UNSET_OUTSIDE"
for a in *.none; do msrun 1 "$a"; done
[ -f /nowhere ] && msrun 1 found
[ "$HOSTNAME" = a ] || msrun 1 other
while read -r a; do msrun 1 "$a"; done < /dev/null
for a in $UNSET_OUTSIDE; do b=$a; shift; set -- "$a"; done; msrun 1 "$b" "$@"
a=1; for i in $(seq 2 | cat); do a=$((a + 1)); let c=a; ((d = a)); : ${e:=x}; declare f=$a; read g; done; msrun 1 $a $c $d $e $f $g
for i in $(seq 2 | cat); do IFS=:; done; a=b:c; msrun 1 $a
declare -i n=2+3; declare -u u=abc; msrun 1 $n $u
shift $UNSET_OUTSIDE; msrun 1 "$@"
unset list[0]; msrun 1 "${list[@]}"; list=(a b); unset "list[1]"; msrun 2 "${list[@]}"
case $UNSET_OUTSIDE in a) b=1;; *) b=2;; esac; msrun 1 $b
[[ "a\"b" =~ "\"" ]] && msrun 0; [[ abc =~ b ]] && msrun 1; [[ a == [ab] ]] && msrun 2; [[ a < b ]] && msrun 3; [[ 1 -eq 1 || -f x ]] && msrun 4
msrun 1 ~ ~/x "~"
source ./nowhere.sh; msrun 1 "$a"
if grep -q x /dev/null; then a=1; else a=2; fi; msrun 1 $a
(exit 3) || msrun 1 x; ! (exit 3) && msrun 2 y
msrun 1 "$(< /dev/null)" "$(echo a b)" `echo c`
set -- a b c; msrun 1 "${@:2}" x; msrun 2 "${@:-d}" "${*:2}" y
a=(); msrun 1 "${a[@]:-none}" "${a[@]+"${a[@]}"}" x; set --; msrun 2 "${@:-d}" "${@+x}"
ab=1; ac=2; msrun 1 "${!a@}" "${ab@Q}"
a=(1 2); i=$UNSET_OUTSIDE; msrun 1 "${a[i]}" "${a[-1]}" "${!a[@]}"; a[$i]=3; msrun 2 "${a[@]}"
msrun 1 $((1 << 4 | 3 & 6 ^ 5)) $((5 >> 1)) $((~0)) $((!3)) $((!0)) $((+4)) $((- -4))
a=5; msrun 1 $((a++)) $a $((++a)) $a $((a--)) $((--a)) $a
a=5; msrun 1 $((a += 3)) $((a -= 1)) $((a *= 2)) $((a /= 3)) $((a %= 3)) $((a <<= 4)) $((a >>= 1)) $((a |= 3)) $((a &= 6)) $((a ^= 1)) $a
a=1; msrun 1 $((a ? 2 : 3)) $((0 ? a++ : 7)) $a $((a = 4, a + 1)) $((b = a = 6)) $b $((1 ? (2, 3) : 4))
a=2; msrun 1 $((0 && a++)) $((1 || a++)) $a $((1 && (a = 9))) $a
for ((i = 0; i < 3; i++)); do msrun 1 fixed; done
set -e; for ((i = 0; i < 2; i++)); do :; done; msrun 1 $i
case a in a) f() { msrun 1 in; };& b) f;; esac
declare -A m=([x]=1 [y]=2); msrun 1 "${m[@]}" "${!m[@]}" "${m[x]}"; msrun 2 "${#m[@]}"
[[ abc == @(abc|d) ]] && msrun 1; [[ ! ( a == b ) && ! ! a ]] && msrun 2
a=MiXed; msrun 1 ${a,,} ${a^^} ${a^} ${a,}
a=b; b=c; msrun 1 ${!a} ${a:=kept} ${none:=given} $none
msrun 1 $(seq 1 .5 2) $(seq -w 8 10) $(basename "$UNSET_OUTSIDE/x") $(dirname -z a); msrun 2 {1..100000}; msrun 3 {B..a}; A=x; msrun 4 $A{1,2} {1,$A}y
msrun 1 "$(printf %s fixed | cat)" || true
for a in 1 2 3; do if [ $a = 2 ]; then continue; fi; msrun 1 ok; [ $a = 3 ] && break; done
i=0; while [ $i -lt 2 ]; do msrun 1 in; i=$((i + 1)); done
until true; do msrun 1 never; done; msrun 2 behind
f() { a=2; }; for i in $(seq 2 | cat); do f; g() { :; }; done; msrun 1 "$a"; g
for i in $(seq 2 | cat); do eval "a=$i"; done; msrun 1 "$a"
"""


def forms(text: str) -> list[str]:
    """Return one script per line; a script of several lines continues until a line that begins with a word of the table."""
    found: list[str] = []
    for line in text.strip().splitlines():
        if found and (found[-1].endswith("\\") or ("<<END" in found[-1] and not found[-1].endswith("\nEND"))):
            found[-1] += "\n" + line
        else:
            found.append(line)
    return found


@pytest.mark.parametrize("script", forms(KNOWN))
def test_what_follows_from_the_script_is_known(script: str, tmp_path: Path) -> None:
    assert differences(script + "\n", tmp_path) == []
    started = [one for several in read(script + "\n").values() for one in several]
    assert started
    assert [one for one in started if one.conditional] == []
    assert [word.text for one in started for word in one.words if word.text is None] == []


@pytest.mark.parametrize("script", forms(UNKNOWN))
def test_what_does_not_is_said_to_be_unknown(script: str, tmp_path: Path) -> None:
    assert differences(script + "\n", tmp_path) == []
    assert is_unknown(script + "\n")


SCRIPTS = [
    "MODEL=qwen-7b\ncase $MODEL in\n  qwen*) L=28 ;;\n  llama-?b|llama) L=32 ;;\n  *) L=1;;\nesac\ntorchrun 1 --num-layers $L\n",
    'M=llama-7b\ncase "$M" in\n  (qwen*) L=28 ;;\n  (llama-?b | llama) L=32 ;;\n  *) L=1;;\nesac\ntorchrun 1 --num-layers $L\n',
    "case $(echo hi) in hi) torchrun 1 --a 1;; *) torchrun 1 --a 2;; esac\n",
    'M="*"\ncase $M in "*") torchrun 1 --star;; *) torchrun 1 --x;; esac\n',
    "M=12\ncase $M in [0-9]) torchrun 1 --one;; [0-9][0-9]) torchrun 1 --two;; esac\n",
    "f() { case $1 in --tp) shift; TP=$1;; --pp=*) PP=${1#*=};; esac; }\nf --tp 4\nf --pp=8\ntorchrun 1 --tp $TP --pp $PP\n",
    'bash -c "$(cat <<EOF\ntorchrun 1 --h 1\nEOF\n)"\n',
    'eval "$(cat <<EOF\ntorchrun 1 --h 1\nEOF\n)"\n',
    'CMD="torchrun 1 --a 1 | cat"\neval $CMD\n',
    'f() { torchrun 1 "$@"; }\nexport -f f\nbash -c "f --a 1"\n',
    "N=2\nif [ $N -eq 1 ]; then L=1\nelif [[ $N == 2 && -n $N ]]; then L=2\nelif [ $N -gt 2 ]; then L=3\nelse L=4; fi\ntorchrun 1 --l $L\n",
    "N=5\nif ((N<3)); then L=1; elif ((N>=3 && N<6)); then L=2; else L=3; fi\ntorchrun 1 --l $L\n",
    "A=qwen-7b\nif [[ $A == qwen* ]]; then L=1; elif [[ $A == *7b ]]; then L=2; fi\ntorchrun 1 --l $L\n",
    "A=qwen-7b\nif [[ $A != llama* && ( $A == *7b || $A == x ) ]]; then L=1; else L=2; fi\ntorchrun 1 --l $L\n",
    "A=3\nif [[ $A -gt 2 && ! $A -eq 5 ]]; then L=1; else L=2; fi\ntorchrun 1 --l $L\n",
    "if false; then :; elif true; then torchrun 1 --b; fi\n",
    "for tp in 1 2; do for pp in 1 2; do torchrun 1 --tp $tp --pp $pp; done; done\n",
    'L=(a b "c d")\nfor i in "${L[@]}"; do torchrun 1 --i "$i"; done\n',
    'set -- x y\nfor i; do torchrun 1 --i "$i"; done\n',
    "for i in 0 1; do torchrun 1 --node_rank $i & done; wait\n",
    "trap 'echo bye; rm -f x' INT TERM\ntorchrun 1 --a\n",
    'A=(--tp 2)\nA+=(--pp 4)\nA+=("--name" "a b")\ntorchrun 1 "${A[@]}"\n',
    'A=(1 2 3)\nA[1]+=5\ntorchrun 1 ${A[1]} ${#A[@]} ${A[-1]} "${A[@]:1}" "${A[*]}"\n',
    'A=()\nA+=(x)\n[ 1 = 1 ] && A+=(y)\n[ 1 = 2 ] && A+=(z)\ntorchrun 1 "${A[@]}"\n',
    'f() { local -a B=("$@"); B+=(--f); torchrun 1 "${B[@]}"; }\nf 1 "2 3"\n',
    'S="a,b,c"\nIFS=, read -ra A <<< "$S"\ntorchrun 1 "${A[@]}" ${A[1]}\n',
    "P=/data/qwen/model.bin.gz\ntorchrun 1 ${P##*/} ${P#*/} ${P%.*} ${P%%.*} ${P%/*} ${#P}\n",
    "torchrun 1 ${TP:-4} ${PP-2} ${CP:=1} $CP ${X:+--x} ${CP:+--cp $CP}\n",
    'A="  x y "\ntorchrun 1 ${A%% } "${A# }" ${A// /}\n',
    "A=1e-5\nB=0.0001\ntorchrun 1 --lr $A --x ${B#0} ${B//0/}\n",
    "A=\"--a 1\n--b 2\"\ntorchrun 1 ${A//$'\\n'/ } \"${A%%$'\\n'*}\"\n",
    "A=$(cat <<< hello)\ntorchrun 1 $A\n",
    "A=$(cat <<EOF\n--x 1\n--y 2\nEOF\n)\ntorchrun 1 $A\n",
    "[ 1 -eq 1 ] && { torchrun 1 --a; exit; }\ntorchrun 1 --b\n",
    "coproc torchrun 1 --co\nwait\n",
    "exec > >(tee /dev/null.txt) 2>&1\ntorchrun 1 --a\n",
    "torchrun 1 --a 2>&1 | tee /dev/null; exit ${PIPESTATUS[0]}\n",
    "torchrun $(echo p.py) --a\n",
    "python -c \"import os; os.system('torchrun 1 --py')\"\n",
    "torchrun 1 \\\n  --a 1 \\\n  # --b 2 \\\n  --c 3\n",
    "T=$'--a\\t1'\ntorchrun 1 \"$T\" $T\n",
    'TP=4; [ "$TP" ] && A=1; [[ $TP ]] && B=2; ((TP)) && C=3\ntorchrun 1 $A $B $C\n',
    "f() { for i in 1 2; do [ $i = $1 ] && return; torchrun 1 $i; done; torchrun 2; }\nf 2\nf 3\n",
    '#!/bin/bash\nset -eo pipefail\nSCRIPT_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\nMODEL=${1:-qwen2.5-7b}\ncase "${MODEL##*-}" in\n  0.5b|1.8b) TP=1; PP=1 ;;\n  7b) TP=2; PP=2 ;;\n  *b) TP=8; PP=4 ;;\n  *) echo "unknown" >&2; exit 1 ;;\nesac\nWORLD=$((TP*PP))\ntorchrun 1 $WORLD --tp $TP --pp $PP --name "${MODEL//./_}"\n',
    'for arg in "tp=2" "pp=4"; do\n  key=${arg%%=*}; val=${arg#*=}\n  declare "$key=$val"\ndone\ntorchrun 1 --tp $tp --pp $pp\n',
    'for arg in "tp=2" "pp=4"; do\n  export "${arg?}"\ndone\ntorchrun 1 --tp $tp --pp $pp\n',
    'run() {\n  local tp=$1 pp=${2:-1}; shift 2\n  torchrun 1 --tp "$tp" --pp "$pp" "$@"\n}\nrun 1 2 --x "a b"\nrun 2 4\n',
    'launch=torchrun\ncmd=("$launch" 1)\ncmd+=(--a 1)\n[[ -n ${DEBUG:-} ]] && cmd+=(--debug)\n"${cmd[@]}"\n',
    'x="a  b"\ny=${x// /_}\ntorchrun 1 "$y" ${x/  /,} "${x%% *}" "${x##* }"\n',
    "if ! [ 1 -eq 2 ] && [[ ! ( a == b || c != c ) ]]; then torchrun 1 --yes; else torchrun 1 --no; fi\n",
    'A=(1 2 3 4)\ntorchrun 1 "${A[@]: -2}" "${A[@]:1:2}" ${A[$((${#A[@]}-1))]} "${A[@]/3/x}" "${#A[2]}"\n',
    'NODES=(n0 n1)\nfor idx in "${!NODES[@]}"; do torchrun 1 --node_rank $idx --host ${NODES[$idx]}; done\n',
    "{ torchrun 1 --a; } 2>&1 | tee /dev/null\n( torchrun 1 --b ) &\nwait\n",
    'ARGS=$(echo "--a 1 \\\n --b 2")\ntorchrun 1 $ARGS\n',
    'yes_no=true\nif $yes_no; then torchrun 1 --t; fi\nif [ "$yes_no" == "true" ]; then torchrun 1 --u; fi\n',
    "f() { return 1; }\nif f; then torchrun 1 --no; else torchrun 1 --yes; fi\nf || torchrun 1 --or\n",
    "bash -c \"for i in 1 2; do torchrun 1 \\$i; done\"\nX=5 bash -c 'torchrun 1 $X'\n",
    'bash <<< "torchrun 1 --a 1"\n',
    'A=2\nbash <<< "torchrun 1 --a $A"\n',
    "bash -s -- 3 4 <<'EOF'\ntorchrun 1 --a $1 --b $2 --n $#\nEOF\n",
    "for i in {1..3}; do torchrun 1 --i $i; done\n",
    "for i in $(seq 0 2); do torchrun 1 --i $i; done\n",
    "D=$(dirname /a/b/c.py)\nB=$(basename /a/b/c.py .py)\ntorchrun 1 $D $B\n",
    "torchrun 1 --a{1,2} x{a..c}y {1,2}{3,4}\n",
    'A=(--x{1,2} {01..03})\ntorchrun 1 "${A[@]}"\n',
]
# Syntax of bash that public scripts do not use: not evaluated, and reported.
NOT_FOLLOWED = [
    "M=7b\ncase $M in\n  7b) L=1 ;&\n  8b) K=2 ;;\n  *) L=3;;\nesac\ntorchrun 1 --num-layers $L --k $K\n",
    "M=7b\ncase $M in\n  7?) L=1 ;;&\n  *b) K=2 ;;\n  *) L=3;;\nesac\ntorchrun 1 --num-layers $L --k $K\n",
    "M=A3\ncase ${M,,} in a3) C=16;; a2) C=8;; esac\ntorchrun 1 --c $C\n",
    'set -- --tp 4 --pp=2 extra\nwhile [ $# -gt 0 ]; do\n case "$1" in\n --tp) TP=$2; shift 2;;\n --pp=*) PP="${1#*=}"; shift;;\n *) E=$1; shift;;\n esac\ndone\ntorchrun 1 --tp $TP --pp $PP $E\n',
    'echo "--num-layers 4 --tp 2" | xargs torchrun 1\n',
    "cat <<EOF | xargs torchrun 1\n--num-layers 4\n--tp 2\nEOF\n",
    'printf "%s\\n" 1 2 3 | xargs -I{} torchrun 1 --node {}\n',
    "echo 1 2 3 | xargs -n 1 torchrun 1 --x\n",
    'xargs torchrun 1 <<< "--a 1 --b 2"\n',
    "echo \"--a 'x y' 3\" | xargs torchrun 1\n",
    "seq 2 | xargs -I N sh -c 'torchrun 1 --n N'\n",
    'echo "torchrun 1 --a 1" | bash\n',
    'A=3\necho "torchrun 1 --a $A" | sh\n',
    'printf "torchrun 1 --a %s\\n" 4 | bash -x\n',
    "cat <<EOF | bash\ntorchrun 1 --a 1\nEOF\n",
    "echo torchrun 1 --a 1 | tee /dev/null | bash\n",
    'echo "torchrun 1 --b 1" > run.sh\nbash run.sh\n',
    "cat > run2.sh <<EOF\ntorchrun 1 --b 1\nEOF\nbash run2.sh\n",
    "cat > run3.sh <<EOF\ntorchrun 1 --b 1\nEOF\nchmod +x run3.sh\n./run3.sh\n",
    "{ echo \"A=1\"; echo 'torchrun 1 --a $A'; } | bash\n",
    'echo -e "A=1\\ntorchrun 1 --a \\$A" | bash\n',
    'echo -n "torchrun 1 --a 2" | bash -e | tee /dev/null\n',
    'CMD="torchrun 1 --a 1"\necho "$CMD" | bash\n',
    'f() { torchrun 1 "$@"; }\nexport -f f\necho 1 2 | xargs -n1 bash -c \'f --a "$@"\' _\n',
    'A=x\nif [ "$A" = x -a 1 -eq 1 ]; then L=1; else L=2; fi\ntorchrun 1 --l $L\n',
    'A=x\nif [ "$A" != x ] || [ 3 -lt 2 ]; then L=1; elif test "$A" = x -o 1 = 2; then L=2; fi\ntorchrun 1 --l $L\n',
    "i=0\nuntil [ $i -ge 3 ]; do i=$((i+1)); done\ntorchrun 1 --i $i\n",
    "i=0\nuntil ((i==2)); do torchrun 1 --i $i; ((i++)); done\n",
    "while read -r a b; do torchrun 1 --$a $b; done <<EOF\ntp 2\npp 4\nEOF\n",
    'printf "tp 2\\npp 4\\n" | while read a b; do torchrun 1 --$a $b; done\n',
    "while true; do torchrun 1 --a; break; done\n",
    "i=0; while :; do ((i++)); [ $i -eq 2 ] && continue; [ $i -gt 3 ] && break; torchrun 1 --i $i; done\ntorchrun 2 --i $i\n",
    "for ((i=0; i<2; i++)) { torchrun 1 --i $i; }\n",
    'trap "torchrun 1 --at-exit" EXIT\ntorchrun 1 --first\n',
    "cleanup() { torchrun 1 --clean; }\ntrap cleanup EXIT\nexit 0\n",
    "trap 'torchrun 1 --x' EXIT\ntrap - EXIT\ntorchrun 1 --a\n",
    'S="a b"\nA=($S c)\ntorchrun 1 ${#A[*]} "${A[@]/#/--}" "${A[@]%b}"\n',
    "P=qwen_7b\ntorchrun 1 ${P/_/-} ${P//[a-z]/x} ${P/#q/Q} ${P/%b/B} ${P^} ${P^^} ${P:0:4} ${P: -2} ${P:5}\n",
    "N=TP\nTP=4\ntorchrun 1 --tp ${!N}\n",
    'GPUS=0,1,2,3\nN=$(echo $GPUS | tr "," "\\n" | wc -l)\nX="${GPUS//[^,]/}"\ntorchrun 1 $N $((${#X}+1))\n',
    'read -r A B <<< "4 8 9"\ntorchrun 1 --a $A --b $B\n',
    'IFS=: read A B <<< "4:8"\ntorchrun 1 --a $A --b $B\n',
    "read A < <(echo 5)\ntorchrun 1 $A\n",
    'read -d "" ARGS <<EOF\n--x 1 \\\n--y 2\nEOF\ntorchrun 1 $ARGS\n',
    "read -r -d '' ARGS <<'EOF'\n--x 1\n--y 2\nEOF\ntorchrun 1 $ARGS\n",
    'printf "%s\\n" "torchrun 1 --a 1" "torchrun 1 --b 2" | while read line; do eval $line; done\n',
    'printf "%s\\n" "torchrun 1 --a 1" > cmds.txt\nwhile read -r l; do $l; done < cmds.txt\n',
    "cat > run.sh <<'EOF'\ntorchrun 1 --x $1 \"$2\"\nEOF\nbash run.sh 1 '2 3'\nchmod +x run.sh\n./run.sh 4\n",
    "echo 'torchrun 1 --a' > run.sh\necho 'torchrun 2 --b' >> run.sh\nsh -e run.sh\nbash < run.sh\n",
    "printf '%s\\n' a b > list\nxargs -n 1 torchrun 1 < list\nxargs torchrun 2 --all < list\n",
    "IFS=, read -r a b <<< 1,2,3\ntorchrun 1 $a $b\n",
    'while read -r a b; do torchrun 1 "$a" "$b"; done < <(printf \'1 2 3\\n4\\n\')\n',
    'i=0\nwhile :; do\n  if (( i >= 3 )); then break; fi\n  L[i]=$((i*i)); ((++i))\ndone\ntorchrun 1 "${L[@]}" ${#L[@]}\n',
    'printf "%s\\n" "--a 1" "--b 2" | while IFS= read -r line; do torchrun 1 $line; done\n',
    "cat <<EOF > job.sh\n#!/bin/bash\nTP=\\$1\ntorchrun 1 --tp \\$TP --out $((1+1))\nEOF\nfor tp in 2 4; do bash job.sh $tp; done\n",
    'f() { trap "torchrun 1 --in-f" EXIT; }\nf\ntorchrun 1 --main\n',
    "N=3\nuntil (( N == 0 )); do (( N-- )) || true; [ $((N % 2)) -eq 0 ] && continue; torchrun 1 --n $N; done\n",
    'x=abcabc\ntorchrun 1 ${x/b*c/-} ${x#*b} ${x##*b} ${x%b*} ${x%%b*} ${x:1:3} ${x: -2:1} ${x/%bc/XY} ${x//[ab]} "${x^^[a]}"\n',
    'A="x y z"\nset -- $A\nwhile (( $# )); do torchrun 1 "$1"; shift; done\n',
    "eval \"$(printf 'TP=%d\\nPP=%d\\n' 2 4)\"\ntorchrun 1 $TP $PP\n",
    'while read -r name size; do\n  [[ $name == \\#* ]] && continue\n  [[ -z $name ]] && continue\n  torchrun 1 --model "$name" --size "$size"\ndone <<EOF\n# comment\nqwen 7\n\nllama 8\nEOF\n',
    "A=$(cat <<-END\n\t--x 1\n\t--y 2\n\tEND\n)\ntorchrun 1 $A\n",
    'f() { echo "--tp $1"; }\ntorchrun 1 $(f 2) $(f 4 | tr 2 3)\n',
    'printf "%s " --a 1 | xargs torchrun 1\necho | xargs -r torchrun 1 --none\necho "a b c" | xargs -n2 torchrun 1\n',
    "echo 'torchrun 1 --x 1' | tee job.sh > /dev/null\nsh job.sh\n",
]


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_all_of_it_is_known(script: str, tmp_path: Path) -> None:
    assert differences(script, tmp_path) == []
    started = [one for several in read(script).values() for one in several]
    assert started
    assert [one for one in started if one.conditional] == []
    assert [one for one in started if any(word.text is None for word in one.words)] == []


@pytest.mark.slow
@pytest.mark.parametrize("script", NOT_FOLLOWED)
def test_what_is_not_followed_is_said_to_be_unknown(script: str, tmp_path: Path) -> None:
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
