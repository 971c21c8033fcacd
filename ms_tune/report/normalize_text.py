"""Show plans of ``normalize-recompute``, their comparison with logs, and converted settings, as text and JSON."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path

from ms_tune.diagnostics import Diagnostic
from ms_tune.dialects import MEGATRON, LayerPlan, LayerSpec, PlanIssue, Warned
from ms_tune.encode import record_json
from ms_tune.enums import RecomputeMode
from ms_tune.report.console import SEVERITY_COLOURS, Console, pad, table_lines, terminal_width, text_width
from ms_tune.source.edit_values import spell_value
from ms_tune.source.files import diff_lines
from ms_tune.source.yaml import nest_values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.dialects.convert_layers import Converted
    from ms_tune.normalize.compare_log import Compared, LayerState
    from ms_tune.normalize.script import ProgramPlan

_NAMES = "abcdefghijklmnopqrstuvwxyz"
_NUMBERS = 4  # columns of numbers in the layer table
_COLUMNS = ("stage", "chunk", "layers", "count", "kind", "effect", "select", "comm", "exclude", "swap", "overridden")
_SHADES = "·░▒▓█"  # none, up to a third, up to two thirds, less than all, all
_THIRDS = 3
_ALIKE = attrgetter(
    *("stage", "chunk", "kind", "recompute", "select_patterns", "comm_patterns", "select_excludes", "comm_excludes"),
    *("swap", "overridden"),
)


def log_text(plan: LayerPlan) -> str:
    """Return the lines that the framework logs, without the date and place before them."""
    return "\n".join(f"{'WARNING' if isinstance(line, Warned) else 'INFO'} - {line}" for line in plan.log)


def write_difference(path: Path, old: str, new: str, console: Console) -> None:
    """Print the changes that ``--write`` would make as a unified diff; nothing without changes."""
    for line in diff_lines(old, new, path.as_posix(), path.as_posix()):
        console.write_raw(line)


def write_files(plan: LayerPlan, console: Console) -> None:
    """Print the other files that a plan was read from."""
    for file in plan.read_from:
        console.note(console.text("normalize.read-from", file=file))


def write_plan(
    plan: LayerPlan, layers: Sequence[LayerSpec], console: Console, *, verbose: bool = False, quiet: bool = False
) -> None:
    """Print the placement, the layers and the findings; ``verbose`` adds the framework's lists and a map of the stages.

    With ``quiet``, print one line: the sizes and the number of findings.
    """
    if quiet:
        counted = Counter([problem.severity.value for problem in plan.problems])
        head = _sizes_of(plan, console) or console.text("normalize.no-plan.short")
        console.write_text("normalize.counts", head=head, errors=counted["error"], warnings=counted["warning"])
        return
    framework = console.text(f"normalize.framework.{plan.dialect}")
    rules = console.text(
        "normalize.head.rules", dialect=plan.dialect, framework=framework, version=plan.framework_version
    )
    size = _sizes_of(plan, console)
    if size:
        gap = "   " if text_width(f"{size}   {rules}") <= terminal_width() else "\n"
        rules = f"{size}{gap}{rules}"
    console.write(rules)
    width = terminal_width()
    if plan.placement is not None:
        _write_placement(plan, console, width)
    if plan.formative is not None:
        if verbose:
            _write_formative(plan, console)
            if plan.layers:
                console.write("\n" + "\n".join(_heat_map(plan.layers, console, width)))
        _write_layers(plan, layers, console, width)
    else:
        console.write(f"\n{console.text('normalize.no-plan')}")
    if plan.problems:
        _write_problems(plan.problems, console)
    if plan.formative is not None and not verbose:
        console.write_section("normalize.next.more")


def _sizes_of(plan: LayerPlan, console: Console) -> str:
    if not plan.placement:
        return ""
    placed, known = sum(map(sum, plan.placement)), len(plan.layers)
    return console.text(
        "normalize.head.ahead" if known > placed else "normalize.head",
        layers=min(placed, known or placed),
        ahead=known - placed,
        stages=len(plan.placement[0]),
        chunks=len(plan.placement),
    )


def _write_placement(plan: LayerPlan, console: Console, width: int) -> None:
    assert plan.placement is not None  # noqa: S101 - checked by the caller
    console.write(f"\n{console.text('normalize.title.placement')}")
    size = max(3, *[len(str(count)) for row in plan.placement for count in row])
    block = max(1, (width - 2) // (size + 1))
    for first in range(0, len(plan.placement[0]), block):
        for row in plan.placement:
            console.write("  " + " ".join([f"{count:>{size}}" for count in row[first : first + block]]))
    pairs = pairwise(plan.layers)
    turns = [after.stage for layer, after in pairs if layer.chunk == after.chunk and layer.stage > after.stage]
    if turns:
        console.write(f"  {console.text('normalize.backwards')}")


def _write_formative(plan: LayerPlan, console: Console) -> None:
    # The framework's log lines verbatim, or the lists if it logs none. A model with prediction layers logs them twice.
    lines = list(dict.fromkeys([line for line in plan.log if line.startswith("Formative ")]))
    title = console.text("normalize.title.formative" if lines else "normalize.title.lists")
    console.write(f"\n{title}")
    if not lines:
        lines = [f"{key}: {value}" for key, value in (plan.formative or {}).items()]
    console.write_lines(lines, "  ")


def _name_pattern(legend: dict[str, str], pattern: str) -> str:
    # A short name for a pattern, so that the table fits a terminal; a new pattern gets a new name.
    count = len(legend)
    more = str(count // len(_NAMES)) if count >= len(_NAMES) else ""
    return legend.setdefault(pattern, _NAMES[count % len(_NAMES)] + more)


def layer_table(plan: LayerPlan, console: Console) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of a table of all layers, the first four columns numbers; patterns are written out."""
    return _layer_rows(plan.layers, str, console)


def _layer_rows(
    layers: Sequence[LayerSpec], short: Callable[[str], str], console: Console
) -> tuple[list[str], list[list[str]]]:
    # Heads and rows, a row for layers that are alike; ``short`` gives a pattern's name.
    heads = [console.text(f"normalize.column.{name}") for name in _COLUMNS]
    return heads, [_layers_row(list(alike), short, console) for _, alike in groupby(layers, key=_ALIKE)]


def _write_layers(plan: LayerPlan, layers: Sequence[LayerSpec], console: Console, width: int) -> None:
    console.write(f"\n{console.text('normalize.title.layers')}")
    legend: dict[str, str] = {}
    heads, rows = _layer_rows(layers, partial(_name_pattern, legend), console)
    console.write_lines(table_lines(heads, rows, right=range(_NUMBERS), width=width) if rows else ())
    if legend:
        _write_legend(legend, plan, console, width)


def _write_legend(legend: dict[str, str], plan: LayerPlan, console: Console, width: int) -> None:
    as_written = any(problem.id == PlanIssue.AS_WRITTEN for problem in plan.problems)
    heading = "normalize.legend" if as_written else "normalize.legend.found"
    console.write(f"\n{console.text('normalize.legend.known' if plan.matches else heading)}")
    for pattern, name in legend.items():
        console.write(f"  {name:<3} {pattern}")
        found = ", ".join((plan.matches or {}).get(pattern, ()))
        console.write_lines(textwrap.wrap(found, width - 8, break_long_words=False, break_on_hyphens=False), "        ")


def _layers_row(run: Sequence[LayerSpec], short: Callable[[str], str], console: Console) -> list[str]:
    first, last, whole = run[0], run[-1], console.text("normalize.swap.layer")
    swaps = [(short(swap.target) if swap.target else whole, swap.prefetch) for swap in first.swap]
    select, comm = " ".join(map(short, first.select_patterns)), " ".join(map(short, first.comm_patterns))
    excludes = " ".join(map(short, (*first.select_excludes, *first.comm_excludes)))
    overridden = [*first.overridden, *[swap.target for swap in first.swap if swap.target in first.select_patterns]]
    idle = [*map(short, overridden), *(["swap"] if first.recompute is RecomputeMode.FULL and first.swap else [])]
    return [
        str(first.stage),
        str(first.chunk),
        f"{first.layer}" if first is last else f"{first.layer}-{last.layer}",
        str(len(run)),
        console.text(f"normalize.kind.{first.kind.value}") if first.kind else "",
        console.text(f"normalize.effect.{first.recompute.value}"),
        select,
        comm,
        excludes,
        " ".join([target if prefetch is None else f"{target}@{prefetch}" for target, prefetch in swaps]),
        " ".join(idle),
    ]


def _write_problems(problems: Sequence[Diagnostic], console: Console) -> None:
    console.write(f"\n{console.text('normalize.title.problems')}")
    for problem in problems:
        label = console.paint(
            console.text(f"normalize.severity.{problem.severity.value}"), SEVERITY_COLOURS[problem.severity]
        )
        console.write(f"  {label} [{problem.id}]: {console.say(problem.message)}")
        if problem.help is not None:
            console.write(f"    {console.text('normalize.help', hint=console.say(problem.help))}")


def _heat_map(layers: Sequence[LayerSpec], console: Console, width: int) -> list[str]:
    # The share of recomputed layers in each cell: stages across, chunks down, in blocks of stages as wide as the
    # terminal. Counted are fully recomputed layers or, without any, those with selected operators or communication.
    effects = [layer.recompute for layer in layers]
    counted, title = {RecomputeMode.FULL}, "normalize.title.map.full"
    if RecomputeMode.FULL not in effects:
        counted, title = {RecomputeMode.SELECT, RecomputeMode.COMM}, "normalize.title.map.select"
    total = Counter([(layer.chunk, layer.stage) for layer in layers])
    hits = Counter([(layer.chunk, layer.stage) for layer in layers if layer.recompute in counted])
    shades, words = {}, {}
    for cell, count in total.items():
        part = hits[cell]
        share = 1 + min(part * _THIRDS // count, _THIRDS - 1) if part else 0
        shades[cell], words[cell] = _SHADES[-1 if part == count else share], f"{part}/{count}"
    chunks, stages = [sorted(set(numbers)) for numbers in zip(*total, strict=True)]
    size = max(*map(len, words.values()), len(str(stages[-1])))
    head, last = console.text("normalize.column.stage"), console.text("normalize.map.chunk", number=chunks[-1])
    label = max(text_width(head), text_width(last))
    block = max(1, (width - 2 - label) // (size + 1))
    rows = []
    for first in range(stages[0], stages[-1] + 1, block):
        shown = range(first, min(first + block, stages[-1] + 1))
        rows.append((head, [str(stage).rjust(size) for stage in shown]))
        for chunk in range(chunks[-1] + 1):
            name = console.text("normalize.map.chunk", number=chunk)
            rows.append((name, [shades.get((chunk, stage), " ") * size for stage in shown]))
            rows.append(("", [words.get((chunk, stage), "-").rjust(size) for stage in shown]))
    lines = ["  " + " ".join([pad(name, label), *cells]).rstrip() for name, cells in rows]
    return [console.text(title), *lines]


def stages_sentence(plan: LayerPlan, console: Console) -> str:
    """Return how many layers of each stage are recomputed, all or part of their operators, in one sentence."""
    total = Counter([layer.stage for layer in plan.layers])
    idle = (RecomputeMode.NONE, RecomputeMode.SWAP)
    hits = Counter([layer.stage for layer in plan.layers if layer.recompute not in idle])
    counts = " ".join([f"{hits[stage]}/{total[stage]}" for stage in sorted(total)])
    return console.text("server.layers", layers=len(plan.layers), counts=counts)


_QUOTE = "'"
_COMPARED = attrgetter("plan.stage", "plan.chunk", "agrees", "known", "planned", "logged")
_MOST_SHOWN = 1000  # characters of a value
_VERDICT_COLOURS = {"same": "green", "differs": "red", "unreadable": "yellow", "unknown": "yellow"}


def write_comparison(result: Compared, console: Console) -> None:
    """Print the verdict, the first difference in full, and the layers of plan and log side by side."""
    plan = result.plan
    head = console.text(f"against.verdict.{result.verdict.value}", logs=len(result.logs), count=len(result.differences))
    console.write(console.paint(head, _VERDICT_COLOURS[result.verdict.value]))
    framework = console.text(f"normalize.framework.{plan.dialect}")
    console.write_text("against.rules", framework=framework, version=plan.framework_version)
    for log in result.logs:
        if len(log.runs) > 1:
            line = min(log.runs[-1].numbers)
            console.write_text("against.runs", file=log.path, count=len(log.runs), line=line)
    for path, number in result.unreadable:
        console.write_text("against.damaged", file=path, line=number)
    if result.differences:
        _write_first(result, console)
    rows = [_compared_row(list(run), console) for _, run in groupby(result.layers, key=_COMPARED)]
    heads = [console.text(f"normalize.column.{name}") for name in ("stage", "chunk", "layers")]
    heads += [console.text(f"against.{name}") for name in ("state", "planned", "logged")]
    if rows:
        console.write("")
        console.write_table(heads, rows, right=range(3))


def _write_first(result: Compared, console: Console) -> None:
    first = result.differences[0]
    where = str(first.log) if first.line is None else f"{first.log}:{first.line}"
    what = first.what
    if first.layer is not None:
        what = console.text("against.at-layer", what=what, layer=first.layer)
    console.write(f"\n{console.text('against.first', what=what)} ({where})")
    for name, value in (("planned", first.planned), ("logged", first.logged)):
        text = (
            value[:_MOST_SHOWN] if value else console.text("against.nothing-said" if value is None else "against.said")
        )
        console.write(f"  {console.labelled(console.text(f'against.{name}'), text)}")
    for reason in result.why:
        console.write(f"  {console.labelled(console.text('against.why'), console.say(reason))}")
    if not result.why:
        console.write(f"  {console.labelled(console.text('against.why'), console.text('against.why.unknown'))}")


def _compared_row(run: list[LayerState], console: Console) -> list[str]:
    first, last = run[0], run[-1]
    numbers = f"{first.plan.layer}" if first is last else f"{first.plan.layer}-{last.plan.layer}"
    state = {True: "same", False: "differs", None: "not-logged" if first.known else "not-known"}[first.agrees]
    return [
        str(first.plan.stage),
        str(first.plan.chunk),
        numbers,
        console.text(f"against.state.{state}"),
        "; ".join(first.planned) or "-",
        "; ".join(first.logged) or "-",
    ]


def converted_text(dialect: str, converted: Converted) -> str:
    """Return the settings in the format of their dialect: arguments for a script, or YAML."""
    if dialect.partition("@")[0] == MEGATRON:
        words = (name if value is True else f"{name} {value}" for name, value in converted.values.items())
        return " \\\n".join(words)
    return conversion_yaml(converted.values)


def conversion_yaml(values: Mapping[str, object]) -> str:
    """Return the settings as YAML for a config."""
    nested = nest_values({tuple(key.split(".")): value for key, value in values.items()})
    return "\n".join(_yaml_lines(nested, ""))


def _yaml_lines(section: Mapping[str, object], indent: str) -> list[str]:
    lines = []
    for key, value in section.items():
        name = key if key.isidentifier() else spell_value(key, _QUOTE)
        if isinstance(value, dict) and value:
            lines += [f"{indent}{name}:", *_yaml_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {spell_value(value, _QUOTE)}")
    return lines


_VERSION = 1


def plan_json(plan: LayerPlan, layers: Sequence[LayerSpec]) -> dict[str, object]:
    """Return a plan with the requested layers."""
    return {
        "version": _VERSION,
        **record_json(plan, "dialect", "framework_version", "placement", "formative", "read_from"),
        "layers": [_layer_json(layer) for layer in layers],
        "problems": _problems_json(plan.problems),
    }


def _problems_json(problems: Sequence[Diagnostic]) -> list[dict[str, object]]:
    return [record_json(problem, "id", "severity", "message") | {"hint": problem.help} for problem in problems]


def _layer_json(layer: LayerSpec) -> dict[str, object]:
    return {
        **({"kind": layer.kind} if layer.kind else {}),
        **record_json(layer, "layer", "stage", "chunk", "recompute", "select_patterns", "comm_patterns", "swap"),
        "select_exclude_patterns": layer.select_excludes,
        "comm_exclude_patterns": layer.comm_excludes,
        "overridden_patterns": layer.overridden,
    }


def programs_json(programs: Sequence[ProgramPlan]) -> dict[str, object]:
    """Return the programs of a script, each with its plan or the reason why it has none."""
    jobs = [
        {
            **record_json(one, "program", "line"),
            "not_evaluable": None if one.plan else record_json(one, "argument", "unknown"),
            "plan": plan_json(one.plan, one.plan.layers) if one.plan else None,
        }
        for one in programs
    ]
    return {"version": _VERSION, "jobs": jobs}


def conversion_json(dialect: str, converted: Converted) -> dict[str, object]:
    """Return the settings of a conversion (including arguments)."""
    return {
        "version": _VERSION,
        "dialect": dialect.partition("@")[0],
        "framework_version": converted.release,
        "settings": converted.values,
        "problems": _problems_json(converted.problems),
    }


def comparison_json(result: Compared) -> dict[str, object]:
    """Return the comparison of a plan with the logs of a job."""
    return {
        "version": _VERSION,
        **record_json(result.plan, "dialect", "framework_version", "read_from"),
        **record_json(result, "verdict", "why"),
        "logs": [
            {
                "file": log.path,
                "rank": log.rank,
                "runs": len(log.runs),
                "line": min(log.runs[-1].numbers) if log.runs else None,
            }
            for log in result.logs
        ],
        "differences": [
            {"file": one.log, **record_json(one, "line", "what", "layer", "planned", "logged")}
            for one in result.differences
        ],
        "unreadable": [{"file": path, "line": line} for path, line in result.unreadable],
        "unknown": [{"what": what, "layer": layer} for what, layer in result.unknown],
        "layers": [
            record_json(state.plan, "layer", "stage", "chunk") | record_json(state, "agrees", "planned", "logged")
            for state in result.layers
        ],
    }
