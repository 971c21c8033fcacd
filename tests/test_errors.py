"""The tree of errors, and the direction in which the rooms of the house may use each other."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from ms_tune import errors
from ms_tune.errors import ConfigError, ExitCode, MsTuneError, TraceError, UsageError
from ms_tune.texts import msg
from tests.sources import Import, Module, imports, modules


class TestTree:
    def test_the_drawing_is_the_tree(self) -> None:
        assert errors.__doc__ is not None
        drawn = re.findall(r"[├└]── (\w+)", errors.__doc__)
        public = [
            name
            for name, kind in vars(errors).items()
            if inspect.isclass(kind) and issubclass(kind, MsTuneError) and not name.startswith("_")
        ]
        assert sorted(drawn) == sorted(set(public) - {"MsTuneError"})
        assert len(set(drawn)) == len(drawn)

    def test_every_branch_grows_from_the_trunk(self) -> None:
        for name in re.findall(r"[├└]── (\w+)", errors.__doc__ or ""):
            parents = [parent for parent in getattr(errors, name).__mro__[1:] if not parent.__name__.startswith("_")]
            assert parents[0] is MsTuneError, name

    def test_every_error_is_the_users_and_not_a_defect(self) -> None:
        kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, MsTuneError)]
        assert {kind.exit_code for kind in kinds} == {ExitCode.USAGE}


class TestMsTuneError:
    def test_it_reads_as_an_english_sentence(self) -> None:
        error = UsageError(msg("cli.usage.value", argument="--layers", detail="no"), msg("cli.interrupted"))
        assert str(error) == "--layers: no"
        assert error.hint == msg("cli.interrupted")
        assert error.location() == ""

    @pytest.mark.parametrize("kind", [ConfigError, TraceError])
    @pytest.mark.parametrize(
        ("place", "text"),
        [
            ({}, "interrupted"),
            ({"path": "a.yaml"}, "a.yaml: interrupted"),
            ({"path": Path("a.yaml"), "line": 3}, "a.yaml:3: interrupted"),
            ({"path": "a.yaml", "line": 3, "column": 7}, "a.yaml:3:7: interrupted"),
        ],
    )
    def test_its_place_comes_first(
        self, kind: type[ConfigError | TraceError], place: dict[str, object], text: str
    ) -> None:
        error = kind(msg("cli.interrupted"), **place)  # type: ignore[arg-type]
        assert str(error) == text
        assert f"{error.location()}: interrupted".removeprefix(": ") == text


# Who may use whom at run time; rooms and single modules, without "ms_tune.". The command line may use everything.
_FOUNDATION = {"errors", "texts", "units", "version"}
_MAY_USE = {
    "errors": {"texts"},
    "texts": {"texts"},
    "units": set[str](),
    "resources": set[str](),
    "extras": _FOUNDATION,
    "frameworks": {"frameworks", *_FOUNDATION},
    "config": {"config", "frameworks", "resources", *_FOUNDATION},
    "layers": {"layers", "frameworks", *_FOUNDATION},
    "normalize": {"normalize", "layers", "trace", "config", "frameworks", *_FOUNDATION},
    "trace": {"trace", *_FOUNDATION},
    "memory": {
        "memory",
        "allocator",
        "packing",
        "trace",
        "resources",
        *_FOUNDATION,
    },  # its findings' texts are a checklist
    "native": {"native", *_FOUNDATION},
    "packing": {"packing", "native", *_FOUNDATION},
    "allocator": {"allocator", "packing", "trace", *_FOUNDATION},
    "lint": {"lint", "normalize", "layers", "config", "frameworks", "resources", *_FOUNDATION},
    "estimate": {"estimate", "layers", "config", "frameworks", *_FOUNDATION},
    "training_process": set[str](),
    "reference_model": {
        *("reference_model", "training_process", "estimate", "normalize", "layers", "config", "frameworks"),
        *_FOUNDATION,
    },
    "dryrun": {
        *("dryrun", "reference_model", "training_process", "estimate", "memory", "native", "normalize", "trace"),
        *("layers", "config", "frameworks", "resources", "extras", *_FOUNDATION),
    },
}
_FRAMEWORKS = {"mindspore", "mindformers", "msadapter", "torch", "hyper_parallel"}
_CHILD = ("dryrun.child", "reference_model.transformer", "reference_model.child", "training_process")
_OUTSIDE_WORLD = {
    *("os", "io", "sys", "subprocess", "shutil", "tempfile", "pathlib", "socket", "signal", "ctypes", "fcntl"),
    *("threading", "multiprocessing", "asyncio", "logging", "urllib", "http", "rich", "glob", "mmap", "tty", "curses"),
}
_RENDERING = {"render", *_FOUNDATION}
_PURE = ("layers", "estimate", "allocator", "planning")  # packing but for its compiled core


def room(name: str) -> str:
    """The part behind ``ms_tune.``; empty for the package itself."""
    return name.partition(".")[2].partition(".")[0]


def used_rooms(module: Module) -> set[tuple[str, int]]:
    used = set()
    for found in imports(module):
        if found.typing_only or not f"{found.module}.".startswith("ms_tune."):
            continue
        used.add((room(found.module) or found.name, found.line))
    return used


class TestDirection:
    @pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
    def test_a_room_uses_only_rooms_below_it(self, module: Module) -> None:
        allowed = _MAY_USE.get(room(module.name))
        if allowed is None:  # the command line, the renderers (see below), the package itself, and rooms yet to come
            return
        forbidden = {use for use in used_rooms(module) if use[0] not in allowed}
        assert forbidden == set()

    def test_nothing_but_the_command_line_uses_the_command_line(self) -> None:
        users = {module.name for module in modules() if ("cli" in {use for use, _ in used_rooms(module)})}
        assert {user for user in users if not user.startswith("ms_tune.cli")} <= {"ms_tune.__main__"}

    def test_only_the_command_line_uses_renderers(self) -> None:
        users = {module.name for module in modules() if "render" in {use for use, _ in used_rooms(module)}}
        assert {user for user in users if not user.startswith(("ms_tune.cli", "ms_tune.render"))} == set()

    @pytest.mark.parametrize(
        "module", [module for module in modules() if module.inside("render")], ids=lambda m: m.name
    )
    def test_a_renderer_uses_results_and_no_functions_of_an_engine(self, module: Module) -> None:
        of_engines = [
            found
            for found in imports(module)
            if found.module.startswith("ms_tune.") and not found.typing_only and room(found.module) not in _RENDERING
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
                ("ms_tune.dryrun.child.", "ms_tune.reference_model.transformer.", "ms_tune.training_process.")
            )
            and not module.inside(*_CHILD)
        ]
        assert found == []


class TestPureRooms:
    @pytest.mark.parametrize("module", [module for module in modules() if module.inside(*_PURE)], ids=lambda m: m.name)
    def test_they_know_no_files_processes_or_terminal(self, module: Module) -> None:
        found = [use for use in imports(module) if not use.typing_only and _outside(use)]
        assert found == []

    @pytest.mark.parametrize("module", [module for module in modules() if module.inside(*_PURE)], ids=lambda m: m.name)
    def test_they_open_and_print_nothing(self, module: Module) -> None:
        called = {
            node.func.id
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not called & {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}


def _outside(use: Import) -> bool:
    return use.module.partition(".")[0] in _OUTSIDE_WORLD


def test_only_the_console_prints() -> None:
    printing = {
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing <= {"ms_tune.render.console"}


_EVALUATING = ("eval", "exec", "compile", "yaml.full_load", "yaml.unsafe_load", "os.system")


def test_nothing_is_evaluated_or_unpickled() -> None:
    evaluated = [
        f"{module.name}:{node.lineno}"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _EVALUATING
    ]
    unpickled = [
        f"{module.name}:{use.line}"
        for module in modules()
        for use in imports(module)
        if use.module in ("pickle", "marshal", "shelve")
    ]
    # A snapshot for PyTorch's viewer is a pickle that is written and never read.
    writers = {module.name for module in modules() if module.name == "ms_tune.render.memory.snapshot"}
    reading = [
        f"{module.name}:{node.lineno}"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("load", "loads", "Unpickler")
        and "pickle" in ast.unparse(node)
    ]
    assert evaluated + [place for place in unpickled if place.partition(":")[0] not in writers] + reading == []
