"""Generate random launch scripts from typical commands; each examined command has a number."""

# ruff: noqa: C901, PLR0911 - a form a line
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

_NAMES = "ABCDE"
_ARRAYS = "XY"
_WORDS = (
    "1",
    "8",
    "x",
    "--tp",
    "a b",
    " lead",
    "trail ",
    "",
    "it's",
    "-",
    "0x1f",
    "a\\b",
    'say "hi"',
    "é",
    "k=v",
    "tab\there",
    "#no",
    "a;b",
)
_TESTS = ("-z", "-n")
_COMPARISONS = ("=", "==", "!=", "-eq", "-ne", "-lt", "-ge")
_OPERATORS = ("+", "-", "*", "<", ">=", "==", "&", "|", "^", "&&", "||", "<<", "**")


class Scripts:
    """A writer of random scripts, without commands that bash ends with an error (a division by zero, ``${A:?}``)."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._number = 0
        self._functions: list[str] = []

    def script(self) -> str:
        """Return one script."""
        self._number, self._functions = 0, []
        settings = "".join(f"{name}={self._value()}\n" for name in _NAMES if self._chance(0.7))
        return (
            "export N=2 M=1\n"
            + settings
            + self._block(self._random.randint(3, 9), 0, inside=False)
            + self._launch()
            + "\n"
        )

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _pick(self, *items: str) -> str:
        return self._random.choice(items)

    def _block(self, count: int, depth: int, *, inside: bool) -> str:
        return "".join(f"{self._statement(depth, inside=inside)}\n" for _ in range(count))

    def _statement(self, depth: int, *, inside: bool) -> str:
        kinds = [self._assign, self._assign, self._array, self._launch, self._launch, self._small, self._arguments]
        if depth < 3:
            kinds += [self._nested(depth, inside=inside)]
        if self._functions and not inside:
            kinds += [lambda: f"{self._pick(*self._functions)} {self._arguments_of(2)}"]
        words = self._random.choice(kinds)()
        if self._chance(0.1):
            words += f" # {self._random.choice(_WORDS)}"
        return words

    # words

    def _literal(self) -> str:
        word = self._random.choice(_WORDS)
        style = self._random.random()
        if style < 0.4:
            return "'" + word.replace("'", "'\\''") + "'"
        if style < 0.7:
            return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return "".join(letter if letter.isalnum() or letter in "-=_." else f"\\{letter}" for letter in word) or "''"

    def _variable(self) -> str:
        name = self._pick(*_NAMES)
        kind = self._random.random()
        if kind < 0.35:
            return f"${name}"
        if kind < 0.5:
            return f"${{{name}}}"
        if kind < 0.6:
            return f"${{{name}{self._changed()}}}"
        if kind < 0.8:
            operand = self._pick("d", "d e", "'q r'", '"s t"', "$A", "${B:-n}", "", "\\}", "x'y z'")
            return f"${{{name}{self._pick(':-', '-', ':+', '+')}{operand}}}"
        if kind < 0.85:
            return f"${{U{self._pick(':-', '-', ':+', '+', ':=')}{self._pick('u', 'u v')}}}"
        if kind < 0.9:
            return f"${{#{name}}}"
        if kind < 0.95:
            return f"${{{self._pick(*_ARRAYS)}[{self._pick('0', '1', '@', '*')}]}}"
        return f"${{#{self._pick(*_ARRAYS)}[@]}}"

    def _changed(self) -> str:
        """Return the text after a name that changes its value."""
        part = self._pick("x", "*", "?", "[0-9]", "[^a-z]*", "'*'", '"$B"', "$B", "a?", "* ", "\\*", "-", "8")
        return self._pick(
            f"{self._pick('#', '##', '%', '%%')}{part}",
            f"{self._pick('/', '//', '/#', '/%')}{part}/{self._pick('', 'y', 'y z', '$C', '--')}",
            self._pick("^", "^^", ",", ",,"),
            f":{self._pick('0', '1', '3', ' -1', 'N')}",
            f":{self._pick('0', '1', '$N')}:{self._pick('1', '2', 'M')}",
        )

    def _arithmetic(self, depth: int = 0) -> str:
        kind = self._random.random()
        if depth > 2 or kind < 0.35:
            return self._pick("0", "1", "2", "7", "012", "0x10", "$((1+1))", "N", "$N", "${N}", "M")
        if kind < 0.75:
            return f"{self._arithmetic(depth + 1)} {self._pick(*_OPERATORS[:8])} {self._arithmetic(depth + 1)}"
        if kind < 0.8:
            return (
                f"{self._pick(*_NAMES[:2])}x={self._arithmetic(depth + 1)}"
                if depth == 0
                else f"N{self._pick('/', '%')}2"
            )
        if kind < 0.85:
            return f"{self._arithmetic(depth + 1)} ? {self._arithmetic(depth + 1)} : {self._arithmetic(depth + 1)}"
        if kind < 0.9:
            return f"{self._pick('-', '!', '~')}({self._arithmetic(depth + 1)})"
        if kind < 0.95:
            return f"N{self._pick('++', '--')}"
        return f"({self._arithmetic(depth + 1)}) {self._pick(*_OPERATORS)} {self._pick('1', '2', '3')}"

    def _part(self) -> str:
        kind = self._random.random()
        if kind < 0.4:
            return self._literal()
        if kind < 0.65:
            return self._variable()
        if kind < 0.85:
            inner = "".join(self._pick(self._variable(), "x", " ", "-y ", "\\$", "\\\n", "'", "$ ") for _ in range(3))
            return f'"{inner}"'
        if kind < 0.95:
            return f"$(({self._arithmetic()}))"
        return self._pick(
            *(
                "$(echo hi)",
                "`echo ho`",
                "$?",
                '"$(echo "a b")"',
                '"$(echo "$A" | cat)"',
                "$(seq 2)",
                "$(basename a/b.py .py)",
            ),
            *(
                '"$(printf %s, 1 2)"',
                "$(expr 3 + 4)",
                "{1..3}",
                "x{a,b}y",
                '"${X[@]:1}"',
                "${X[-1]}",
                "${X[N-1]}",
                "$(cat <<< $B)",
                *('x{$A,"b c"}', "{01..3}{,x}", "{A,{b,$N}}", '"$(seq 1 "$N")"', "$(seq 3 -1 1)", "$(dirname x/$A)"),
                *('"$(basename "$A")"', "$(basename /y/$N.sh .sh)", '"$(dirname "$B")"'),
            ),
            '"$(if [ "$A" = 4 ]; then echo yes; else echo no; fi)"',
        )

    def _word(self) -> str:
        return "".join(self._part() for _ in range(self._random.choice((1, 1, 1, 2, 3))))

    def _value(self) -> str:
        return self._pick("", "4", "8", "2", self._word(), self._word(), self._string())

    def _string(self) -> str:
        lines = [
            f"    --{self._pick('tp', 'pp', 'lr')} {self._pick('1', '$A', '${B}', '$((2*4))', '1e-5')}"
            for _ in range(3)
        ]
        return '"\n' + self._pick(" \\\n", "\n").join(lines) + self._pick(" \\\n", "\n", "") + '"'

    def _arguments_of(self, count: int) -> str:
        apart = self._pick(" ", " ", " \\\n    ", "  ")
        words = [
            self._pick(self._word(), self._word(), '"${X[@]}"', "${Y[@]}", '"$@"', "$*", "${X[*]}", '"${Y[*]}"', "z")
            for _ in range(count)
        ]
        return apart.join(words)

    # statements

    def _launch(self) -> str:
        self._number += 1
        ahead = self._pick("", "", "", f"A={self._word()} ", "M=3 ")
        behind = self._pick("", "", "", " > /dev/null", " 2>&1", " <<< hi", " 2>/dev/null < /dev/null")
        return f"{ahead}{self._pick('msrun', 'torchrun', 'python')} id{self._number} {self._arguments_of(self._random.randint(0, 4))}{behind}"

    def _assign(self) -> str:
        if self._chance(0.15):
            return f"{self._pick('N', 'M')}={self._pick('1', '2', '$((N + 1))', '12', '-3')}"
        one = f"{self._pick(*_NAMES)}{self._pick('=', '=', '=', '+=')}{self._value()}"
        if self._chance(0.2):
            return (
                f"{self._pick('export', 'declare', 'declare -x', 'typeset')} {one} {self._pick(*_NAMES)}={self._word()}"
            )
        return one

    def _array(self) -> str:
        name = self._pick(*_ARRAYS)
        if self._chance(0.15):
            return f"{name}[{self._pick('0', '2')}]={self._word()}"
        words = self._pick(" ", "\n  ").join(self._word() for _ in range(self._random.randint(0, 3)))
        return f"{name}{self._pick('=', '=', '+=')}({words})"

    def _small(self) -> str:
        return self._pick(
            f"unset {self._pick(*_NAMES, *_ARRAYS)}",
            f"(( {self._arithmetic()} ))",
            f"let N={self._pick('1', '2+3', 'N+1')}",
            f": <<EOF\nA={self._pick('1', '2')}\nEOF",
            f"read A <<< {self._literal()}",
            "echo A=3 > /dev/null",
            f"printf -v B %s {self._literal()}",
            "IFS=: read A B <<< 'a:b'",
            self._pick("shift", "set -- a 'b c' d", 'set -- "$@" e', "set -- $A"),
            f"eval C={self._pick('1', '2')}" if self._chance(0.2) else ":",
            "{ :; }",
            "! true",
        )

    def _arguments(self) -> str:
        return f"{self._pick('ARGS', 'E')}={self._string()}\n{self._launch()} $ARGS $E"

    def _test(self) -> str:
        word = f'"{self._pick("$A", "$B", "$N", "${C:-}", "x", "4")}"'
        if self._chance(0.15):
            return self._pick("[ -d /nowhere ]", "[ -f /dev/null ]", "true", "false", "(( N > 2 ))", "! true")
        words = f"{self._pick(*_TESTS)} {word}"
        if self._chance(0.6):
            operator = self._pick(*_COMPARISONS)
            words = (
                f"{word if operator[0] != '-' else self._pick('3', '$(( N ))')} {operator} {self._pick('4', '8', '3')}"
            )
        joined = self._pick(f"[ {words} ]", f"[[ {words} ]]", f"test {words}")
        if self._chance(0.1):
            joined = f"[[ {words} {self._pick('&&', '||')} -n $A ]]"
        return joined

    def _nested(self, depth: int, *, inside: bool):  # type: ignore[no-untyped-def]  # noqa: ANN202 - one of the writers below
        def block() -> str:
            return self._block(self._random.randint(1, 2), depth + 1, inside=inside)

        def branch() -> str:
            words = f"if {self._test()}; then\n{block()}"
            if self._chance(0.4):
                words += f"elif {self._test()}\nthen {block()}"
            if self._chance(0.6):
                words += f"else\n{block()}"
            return f"{words}fi"

        def case() -> str:
            patterns = ("4", "8", "x|y", "$B", "[0-9]", "*[0-9]", '"$B"', "-*")
            ends = (";;", ";;", ";&", ";;&")
            arms = "".join(f"{self._pick(*patterns)}) {block()}{self._pick(*ends)}\n" for _ in range(2))
            return f"case {self._pick('$A', '4', '$C')} in\n{arms}{self._pick('*) :;; ', '')}esac"

        def loop() -> str:
            name, own = self._pick(*_NAMES, "I"), f"J{depth}{inside:d}"
            words = self._pick(
                f"for {name} in 1 2 'a b'; do",
                f"for {name} in $A",
                f"for (({own}=0; {own}<2; {own}++)); do",
                f"for {name} in {{1..2}} $(seq 2); do",
                f"{own}=2; until [ ${own} -le 0 ] || (( {own}-- < 1 )); do",
                f"printf '1 2\n3\n' | while read -r {name} {own}; do",
                f"{own}=2; while (( {own}-- > 0 )); do",
            )
            middle = "" if words.endswith("do") else "\ndo"
            end = self._pick("", "", "break\n", f"{self._test()} && continue\n")
            if self._chance(0.15):
                return f"while read -r {name} {own}; do\n{block()}{end}done <<EOF\n4 x y\n8\nEOF"
            return f"{words}{middle}\n{block()}{end}done"

        def function() -> str:
            name = f"f{len(self._functions)}" if not inside else f"g{depth}"
            own = self._pick("", f"local {self._pick(*_NAMES)}={self._word()}\n", f"local {self._pick(*_NAMES)}\n")
            end = self._pick(
                "", "", "return\n", f"{self._test()} && return\n", f"if {self._test()}; then return 1; fi\n"
            )
            body = self._block(2, depth + 1, inside=True)
            if not inside:
                self._functions.append(name)
            return f"{self._pick(f'{name}()', f'function {name}')} {{\n{own}{end}{body}}}"

        def either() -> str:
            return f"{self._test()} {self._pick('&&', '||')} {self._pick(self._assign(), self._launch())}"

        def nested_shell() -> str:
            body = block()
            return self._pick(
                f"(\n{body})", f"{{\n{body}}}", f"{{\n{body}}} | :", f"( {self._assign()}; {self._launch()} ) &\nwait"
            )

        def shell_function() -> str:
            inner = self._launch().replace("'", "")
            self._number += 1
            return self._pick(
                f"bash <<'EOF'\n{block()}EOF",
                f"echo 'python id{self._number} $A x' | {self._pick('bash', 'sh', 'bash -s 1')}",
                f'echo "python id{self._number} $N" | bash',
                f"cat > run{self._number}.sh <<'EOF'\n{block()}EOF\n{self._pick('bash', 'sh -e')} run{self._number}.sh 1 '2 3'",
                f"{self._pick('echo', 'seq', 'printf')} {self._pick('1', '3')} | xargs {self._pick('', '-n 1', '-r')} python id{self._number} x",
                f"seq 2 | xargs -I {{}} msrun id{self._number} a{{}} b",
                f"bash -c '{inner}' name 1 '2'" if "\n" not in inner else ":",
            )

        def leave() -> str:
            return f"{self._test()} && exit" if self._chance(0.15) else ":"

        return self._random.choice(
            (branch, branch, case, loop, loop, function, either, nested_shell, shell_function, leave)
        )
