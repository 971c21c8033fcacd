"""Find the required arguments of learning-rate schedules in the sources of a release."""

from __future__ import annotations

import ast

from tests.oracle import wheels

_FILE = "core/lr/lr_schedule.py"
_CHOICE = "_get_lr_steps"  # takes a number of steps, or a share of all steps instead; one of the two is required
_BUILT = frozenset({"self", "total_steps"})  # the trainer fills in total_steps (trainer/base_trainer.py)


def needed(release: str) -> dict[str, list[list[str]]]:
    """Return for each schedule that reads its arguments from a config the groups of arguments of which one is required.

    ``?`` follows an argument with a default: only null leaves the schedule without it.
    """
    found = {}
    for node in ast.parse(wheels.source(release, _FILE)).body:
        if isinstance(node, ast.ClassDef) and node.name in _public(release):
            begin = next(one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
            found[node.name] = _groups(begin)
    return found


def _public(release: str) -> set[str]:
    module = ast.parse(wheels.source(release, _FILE))
    listed = next(
        one for one in module.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__"
    )
    return set(ast.literal_eval(listed.value)) - {"LearningRateWiseLayer"}  # the trainer makes it from another schedule


def _groups(begin: ast.FunctionDef) -> list[list[str]]:
    names = [one.arg for one in begin.args.args]
    defaults = dict(zip(names[len(names) - len(begin.args.defaults) :], begin.args.defaults, strict=True))
    absent = {name for name in names if name not in defaults or ast.unparse(defaults[name]) == "None"}
    groups = [[name] for name in names if name not in defaults and name not in _BUILT]
    for node in ast.walk(begin):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == _CHOICE:
            pair = [ast.unparse(one) for one in node.args[:2]]
            if not _set_before(begin, pair[0]):
                groups.append(pair if pair[0] in absent else [f"{pair[0]}?", *pair[1:]])
    return groups


def _set_before(begin: ast.FunctionDef, name: str) -> bool:
    """Return whether the name has another value at this point than that of the config."""
    return any(
        isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and _CHOICE not in ast.unparse(node.value)
        for node in begin.body
    )
