"""Compare unusual launch scripts with bash, run with stand-ins for the launchers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.source.shell.test_bash import BASH, differences, is_unknown, read

pytestmark = pytest.mark.skipif(BASH is None, reason="bash is not installed")

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
