"""Test the structure of the package: allowed imports, no cycles, one entry point to the reference transformer."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from ms_tune.enums import Dialect
from ms_tune.facts.keys import tables
from tests.sources import PACKAGE, Import, Module, imports, modules, nodes

# The floors, from the bottom; a folder uses the floors below its own, also for types.
_FLOORS = (
    {"diagnostics", "encode", "enums", "errors", "extras", "native", "records", "text", "units", "version"},
    {"source", "facts"},
    {"dialects", "estimate", "footprint", "packing", "planning", "pools", "readers", "reference", "verdict"},
    {"job"},
    {"lint", "normalize", "dryrun", "fit", "memory", "metrics", "profile"},
    {"workflows"},
    {"report"},
    {"cli"},
)
_FLOOR = {room: number for number, rooms in enumerate(_FLOORS) for room in rooms}
# Allowed imports on one floor.
_BESIDE = {
    ("diagnostics", "records"),
    ("diagnostics", "text"),
    ("encode", "text"),
    ("text", "records"),
    ("errors", "text"),
    ("extras", "errors"),
    ("extras", "text"),
    ("native", "errors"),
    ("native", "text"),
    ("source", "facts"),
    ("pools", "packing"),
    ("pools", "readers"),
    ("footprint", "pools"),
    ("footprint", "readers"),
    ("footprint", "verdict"),
    ("estimate", "dialects"),
    ("estimate", "verdict"),
    ("planning", "dialects"),
    ("reference", "dialects"),
    ("reference", "estimate"),
    ("reference", "planning"),
    ("fit", "dryrun"),
    ("fit", "normalize"),
}
_FRAMEWORKS = {"mindspore", "mindformers", "msadapter", "torch", "hyper_parallel"}
_CHILD = ("dryrun.child", "memory.follow", "reference.transformer", "training_process")
_OUTSIDE_WORLD = {
    *("os", "io", "sys", "subprocess", "shutil", "tempfile", "pathlib", "socket", "signal", "ctypes", "fcntl"),
    *("threading", "multiprocessing", "asyncio", "logging", "urllib", "http", "glob", "mmap", "tty", "curses"),
}
_LONGEST_NAME = 60  # characters; a longer string is prose
_PURE = ("dialects", "estimate", "pools", "planning", "verdict")  # packing except its compiled core
_COMPILED = "planning.anneal"  # calls C code


def room(name: str) -> str:
    """Return the name after ``ms_tune.``; empty for the package itself."""
    return name.partition(".")[2].partition(".")[0]


def used_rooms(module: Module) -> set[tuple[str, int]]:
    used = set()
    for found in imports(module):
        if not f"{found.module}.".startswith("ms_tune."):
            continue
        used.add((room(found.module) or found.name, found.line))
    return used


class TestDirection:
    def test_every_room_is_on_a_floor(self) -> None:
        assert {room(module.name) for module in modules()} - _FLOOR.keys() == {"", "__main__", "training_process"}

    def test_arrows_go_down(self) -> None:
        arrows = {
            (room(module.name), used)
            for module in modules()
            if room(module.name) in _FLOOR
            for used, _ in used_rooms(module)
            if used in _FLOOR and used != room(module.name) and _FLOOR[used] >= _FLOOR[room(module.name)]
        }
        assert arrows - _BESIDE == set()

    def test_a_report_uses_results_and_no_functions_of_an_engine(self) -> None:
        reports = [module for module in modules() if module.inside("report")]
        assert reports
        of_engines = [
            found
            for module in reports
            for found in imports(module)
            if found.module.startswith("ms_tune.")
            and not found.typing_only
            and _FLOOR.get(room(found.module), 0) in (2, 3, 4, 5)
        ]
        # Classes and constants begin with a capital letter.
        assert [found for found in of_engines if not found.name[:1].isupper()] == []

    def test_only_child_processes_import_the_frameworks(self) -> None:
        found = [
            f"{module.name}:{use.line} {use.module}"
            for module in modules()
            for use in imports(module)
            if use.module.partition(".")[0] in _FRAMEWORKS and not module.inside(*_CHILD)
        ]
        assert found == []

    def test_only_child_processes_import_the_modules_that_do(self) -> None:
        found = [
            f"{module.name}:{use.line} {use.module}"
            for module in modules()
            for use in imports(module)
            if not use.typing_only
            and f"{use.module}.{use.name}.".startswith(
                ("ms_tune.dryrun.child.", "ms_tune.reference.transformer.", "ms_tune.training_process.")
            )
            and not module.inside(*_CHILD)
        ]
        assert found == []


@cache
def used_modules() -> dict[str, set[str]]:
    """Return for every module the modules of the package that it imports: at start-up, later, or for types."""
    names = {module.name for module in modules()}
    used: dict[str, set[str]] = {}
    for module in modules():
        found = {(f"{use.module}.{use.name}", use.module) for use in imports(module)}
        aims = {whole if whole in names else part for whole, part in found if {whole, part} & names}
        used[module.name] = aims - {module.name}
    return used


def circles(arrows: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the items that can be reached from themselves, as sorted groups (Tarjan's strongly connected components)."""
    reach: dict[str, set[str]] = {}
    for start in arrows:
        reach[start], todo = set(), list(arrows[start])
        while todo:
            one = todo.pop()
            if one not in reach[start]:
                reach[start].add(one)
                todo += arrows.get(one, ())
    groups = {frozenset(other for other in seen if start in reach.get(other, ())) for start, seen in reach.items()}
    return sorted(sorted(group) for group in groups if group)


# A small module, outside the only module of its folder that imports it, needs a reason.
_SMALL, _LONG = 60, 400  # lines
_SMALL_ONES = {
    "ms_tune.dryrun.experts": "plain arithmetic, without the MindSpore that the child process needs",
}


def test_a_small_file_with_one_importer_is_part_of_it() -> None:
    """Exceptions are packages' own files, modules that are loaded by name, and entry points from one folder to another."""
    lines = {module.name: len(module.path.read_text("utf-8").splitlines()) for module in modules()}
    by_name = {use.module for module in modules() for use in imports(module) if use.by_name}
    small = [module.name for module in modules() if lines[module.name] < _SMALL and not module.is_package]
    found = {}
    for name in small:
        importers = [user for user, used in used_modules().items() if name in used]
        if len(importers) == 1 and name not in by_name and room(importers[0]) == room(name):
            found[name] = lines[name] + lines[importers[0]]
    assert {name for name, together in found.items() if together <= _LONG} == set(_SMALL_ONES)


def test_modules_that_are_loaded_by_name_are_seen() -> None:
    used = used_modules()
    assert "ms_tune.lint.check_keys" in used["ms_tune.lint.engine"]
    assert "ms_tune.cli.lint" in used["ms_tune.cli.main"]
    assert "ms_tune.cli.memory_plan" in used["ms_tune.cli.memory"]


class TestCircles:
    def test_the_search_finds_one(self) -> None:
        assert circles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]}) == [["b", "c"]]

    def test_no_module_needs_itself(self) -> None:
        assert circles(used_modules()) == []

    def test_no_room_needs_itself(self) -> None:
        arrows: dict[str, set[str]] = defaultdict(set)
        for module, used in used_modules().items():
            arrows[room(module)] |= {to for to in map(room, used) if to != room(module)}
        assert circles(arrows) == []


class TestReferenceModel:
    def test_there_is_one_door(self) -> None:
        users = {
            module
            for module, used in used_modules().items()
            if room(module) != "reference" and any(room(one) == "reference" for one in used)
        }
        assert users == {"ms_tune.dryrun.dynamic"}

    def test_no_text_names_its_modules(self) -> None:
        """A module that is started by its name would be a dependency that imports do not show."""
        found = [
            f"{module.name}:{node.lineno}"
            for module in modules()
            if not module.inside("reference", "dryrun.dynamic")
            for node in nodes(module)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"ms_tune\.reference[\w.]*", node.value)
        ]
        assert found == []


_LATE = 45  # imports inside functions: of optional packages, and of what few runs need and takes long


def test_an_import_inside_a_function_says_why() -> None:
    """The reason is in a comment on the line, or on the first one of its block; and there are few."""
    silent, count = [], 0
    for module in modules():
        lines = module.path.read_text("utf-8").splitlines()
        late = {
            node.lineno
            for function in nodes(module)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
        count += len(late) if not module.inside(*_CHILD) else 0
        silent += [
            f"{module.name}:{number}"
            for number in sorted(late)
            if "PLC0415 - " not in lines[number - 1]
            and not {number - 1, number - 2} & late
            and not lines[number - 2].lstrip().startswith("#")
        ]
    assert silent == []
    assert count <= _LATE


# Called by other packages, by names that no text of ms-tune contains: a callback of MindFormers' trainer, a method of
# PyYAML's dumper, two of Python's unpickler.
_CALLED_FROM_OUTSIDE = {"on_step_begin", "ignore_aliases", "find_class", "persistent_load"}


def test_nothing_is_there_that_only_a_test_calls() -> None:
    """Every function, class and method is named in the package outside its definition, or in a checklist."""
    used = set(_CALLED_FROM_OUTSIDE)
    for path in sorted((PACKAGE.parent / "checklists").rglob("*.yaml")):
        used.update(re.findall(r"\w+", path.read_text("utf-8")))
    defined: list[tuple[str, str]] = []
    for module in modules():
        for node in nodes(module):
            if isinstance(node, ast.Name):
                used.add(node.id)
            elif isinstance(node, ast.Attribute):
                used.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < _LONGEST_NAME:
                used.update(re.findall(r"\w+", node.value))
        bodies = [module.tree.body, *(node.body for node in module.tree.body if isinstance(node, ast.ClassDef))]
        inside = [node for body in bodies for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        defined += [(module.name, node.name) for node in inside if not node.name.startswith("__")]
    assert [f"{module}: {name}" for module, name in defined if name not in used] == []


_READING = ("job", "dialects", "facts")  # who may name the keys of configs; the checklists, too, which are no code
_NAMING = {
    "workflows.migrate": "what becomes of each key of one dialect in another one is its subject",
    "dryrun.shrink": "writes the smaller config that a framework is run with",
    "dryrun.dynamic": "likewise, of MindSpeed-Core-MS",
    "dryrun.theory_mindformers": "looks at the smaller config, for what each of its settings does to a weight",
    "reference.mindspeed": "says by its key what the reference transformer does not do",
    "reference.pynative": "likewise",
    "dryrun.child": "calls the frameworks, whose arguments may be called as a key is",
    "lint.check_jobs": "what a row of a checklist cannot say of one key",
    "normalize.sapp": "writes SAPP's lists under the keys of each dialect",
}
_DIALECTS = (Dialect.MINDFORMERS, Dialect.MINDFORMERS_PYNATIVE, Dialect.MINDSPEED_MS)  # whose configs are YAML


@cache
def raw_keys() -> tuple[set[tuple[str, ...]], set[str]]:
    """Return the key paths of configs, and their names with an underscore that no name of the package has."""
    paths = {key.path for dialect in _DIALECTS for key in tables(dialect)}
    own: set[str] = set()
    for node in (node for module in modules() for node in nodes(module)):
        if isinstance(node, ast.Attribute):
            own.add(node.attr)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            own.add(node.target.id)
    return {path for path in paths if len(path) > 1}, {path[-1] for path in paths if "_" in path[-1]} - own


def keys_in(tree: Iterable[ast.AST]) -> Iterator[str]:
    """Yield complete key paths, dotted or as tuples, and names of keys that are looked up."""
    paths, names = raw_keys()
    for node in tree:
        path = _words(node)
        if path in paths:
            yield ".".join(path)
        looked_up: ast.AST | None = None
        if isinstance(node, ast.Subscript):
            looked_up = node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            looked_up = next(iter(node.args), None)
        for one in looked_up.elts if isinstance(looked_up, ast.Tuple) else [looked_up]:
            if isinstance(one, ast.Constant) and one.value in names:
                yield str(one.value)


def _words(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return tuple(node.value.split("."))
    parts = node.elts if isinstance(node, ast.Tuple) else []
    return tuple(str(part.value) if isinstance(part, ast.Constant) else "" for part in parts)


class TestRawKeys:
    def test_they_are_found(self) -> None:
        code = "a['pp_interleave_num'], b.get('recompute_config.recompute'), ('model', 'model_config', 'offset'), c['layers']"
        found = {"model.model_config.offset", "pp_interleave_num", "recompute_config.recompute"}
        assert set(keys_in(ast.walk(ast.parse(code)))) == found

    def test_only_the_readers_name_them(self) -> None:
        found = {module.name: set(keys_in(nodes(module))) for module in modules() if not module.inside(*_READING)}
        naming = {name: keys for name, keys in found.items() if keys}
        allowed = {
            name: next((one for one in _NAMING if f"{name}.".startswith(f"ms_tune.{one}.")), None) for name in naming
        }
        assert {name: naming[name] for name, room_of_it in allowed.items() if room_of_it is None} == {}
        assert set(allowed.values()) == _NAMING.keys()  # every allowed entry still exists


class TestPureRooms:
    def test_they_know_no_files_processes_or_terminal(self) -> None:
        pure = [module for module in modules() if module.inside(*_PURE) and not module.inside(_COMPILED)]
        assert pure
        outside = ((module, use) for module in pure for use in imports(module) if not use.typing_only and _outside(use))
        assert [f"{module.name}:{use.line} {use.module}" for module, use in outside] == []

    def test_they_open_and_print_nothing(self) -> None:
        forbidden = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}
        called = [
            f"{module.name}:{node.lineno} {node.func.id}"
            for module in modules()
            if module.inside(*_PURE)
            for node in nodes(module)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in forbidden
        ]
        assert called == []


def _outside(use: Import) -> bool:
    return use.module.partition(".")[0] in _OUTSIDE_WORLD


def test_only_the_console_prints() -> None:
    printing = {
        module.name
        for module in modules()
        for node in nodes(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing <= {"ms_tune.report.console"}


# Each reads files of ms-tune itself, or those of its own run folders and caches, whose size it looks at first.
_OWN_FILES = {
    *(
        "text",
        "extras",
        "native",
        "memory.follow.training",
        "report.memory_html",
        "footprint.findings",
        "footprint.remedies",
    ),
    *("lint.checklist", "lint.rules", "cli.demo", "cli.init", "cli.rule", "fit.measure", "fit.table_cache"),
    *("footprint.judgement", "readers.plain_pickle", "source.atomic_write", "workflows.new_job.drafts"),
}


def test_files_that_users_name_are_opened_in_one_place() -> None:
    """That place does not wait for pipes and reads up to a limit; ``file_to_write`` makes the files that are written."""
    opening = {
        module.name.removeprefix("ms_tune."): node.lineno
        for module in modules()
        if not module.inside("dryrun", "facts", "reference", "source.files")
        for node in nodes(module)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in ("open", "read_text", "read_bytes")
        and ast.unparse(node.func) not in ("os.open", "read_text", "read_bytes")
        and not any(isinstance(word, ast.Constant) and "w" in str(word.value) for word in node.args)
    }
    assert {*opening} == _OWN_FILES


_EVALUATING = ("eval", "exec", "compile", "yaml.full_load", "yaml.unsafe_load", "os.system")


def test_nothing_is_evaluated_or_unpickled() -> None:
    evaluated = [
        f"{module.name}:{node.lineno}"
        for module in modules()
        for node in nodes(module)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _EVALUATING
    ]
    unpickled = [
        f"{module.name}:{use.line}"
        for module in modules()
        for use in imports(module)
        if use.module in ("pickle", "marshal", "shelve")
    ]
    # A snapshot for PyTorch's viewer is a pickle that is written and never read; one of PyTorch is read without any
    # class.
    writers = {"ms_tune.report.memory_export", "ms_tune.readers.plain_pickle"}
    reading = [
        f"{module.name}:{node.lineno}"
        for module in modules()
        for node in nodes(module)
        if isinstance(node, ast.Attribute)
        and node.attr in ("load", "loads", "Unpickler")
        and "pickle" in ast.unparse(node)
        and module.name != "ms_tune.readers.plain_pickle"
    ]
    assert evaluated + [place for place in unpickled if place.partition(":")[0] not in writers] + reading == []
