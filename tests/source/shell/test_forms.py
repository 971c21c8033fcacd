"""Compare shell syntax with bash, one form at a time: equal words, or reported as unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.source.shell.test_bash import BASH, differences, is_unknown, read

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
