"""Find the functions that take a training step, regardless of their names, and the code that is compiled to a graph.

A step is recognised by its calls: of a function made by ``value_and_grad`` or similar, of an optimizer, or of another
function that takes a step. Names are followed within one file only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import lru_cache

from ms_tune.lint.python_code.module import FUNCTIONS, Function, Module

# Functions of MindSpore that create a function which computes gradients (mindspore/ops, 2.4 to 2.9).
_GRADIENTS = re.compile(r"mindspore(?:\.\w+)*\.(?:value_and_grad|grad|GradOperation|vjp|TrainOneStep\w*)$")
_OPTIMIZERS = re.compile(
    r"mindspore\.(?:(?:mint|experimental)\.optim(?:\.\w+)*\.[A-Z]\w*|"
    r"nn\.(?:optim\.)?(?:Adam\w*|AdaFactor|Adagrad|ASGD|FTRL|Lamb|LARS|LazyAdam|Momentum|ProximalAdagrad|RMSProp|Rprop|SGD|thor))$"
)
_JIT = re.compile(r"mindspore(?:\.\w+)*\.(?:jit|ms_function|jit_class|compile)$")
_DYNAMIC = ("mindformers.pynative", "mindformers.experimental")  # parts of MindFormers without a static graph
_CALLED = ("construct", "__call__", "forward")  # the methods that run when an object is called
_ROUNDS = 5  # the most levels of functions that call functions


@lru_cache(maxsize=2)
def stepping(module: Module) -> frozenset[Function]:
    """Return the functions and methods of a file that take training steps, directly or through others."""
    makers = gradient_makers(module)
    functions = [node for node in module.functions if not node.name.startswith("__") or node.name == "__call__"]
    inside = {one: [node for node in module.below(one) if isinstance(node, ast.Call)] for one in functions}
    calls = {one: {_last_two(node.func) for node in nodes} for one, nodes in inside.items()}
    found = {one for one in functions if calls[one] & makers or any(map(_runs_backward, inside[one]))}
    for _ in range(_ROUNDS):
        names = {name for one in found for name in _names_of(module, one)}
        further = {one for one in functions if one not in found and calls[one] & names}
        if not further:
            break
        found |= further
    forward = {name for call, full in module.calls if _GRADIENTS.search(full) for name in map(_last_two, call.args[:1])}
    found |= {one for one in functions if _names_of(module, one) & forward}
    return frozenset(found)


@lru_cache(maxsize=2)
def gradient_makers(module: Module) -> frozenset[str]:
    """Return the names in a file of objects that compute gradients or update weights: ``grad_fn``, ``self.opt``."""
    made = set()
    for call, full in module.calls:
        if not (_GRADIENTS.search(full) or _OPTIMIZERS.search(full)):
            continue
        around: ast.AST | None = module.parents.get(call)
        if isinstance(around, ast.Call) and around.func is call:  # GradOperation()(net, weights)
            around = module.parents.get(around)
        if isinstance(around, (ast.Assign, ast.AnnAssign)):
            targets: Iterable[ast.expr] = around.targets if isinstance(around, ast.Assign) else (around.target,)
            made |= {_last_two(target) for target in targets}
    return frozenset(made - {""})


def calls_step(module: Module, call: ast.Call) -> bool:
    """Return whether a call takes a training step, as far as this file shows."""
    name = _last_two(call.func)
    return bool(name) and (name in gradient_makers(module) or name in _step_names(module))


@lru_cache(maxsize=2)
def _step_names(module: Module) -> frozenset[str]:
    """Return the names whose call takes a step: functions, methods, and objects of a class with such a method."""
    names = {name for one in stepping(module) for name in _names_of(module, one)}
    called = {one for one in stepping(module) if one.name in _CALLED}
    owners = {owner.name for owner in map(module.parents.get, called) if isinstance(owner, ast.ClassDef)}
    for call, full in module.calls:
        around = module.parents.get(call)
        compiles = bool(call.args) and is_jit(module, call) and _last_two(call.args[0]) in names
        if (compiles or full.removeprefix("?") in owners) and isinstance(around, ast.Assign):
            names |= {_last_two(target) for target in around.targets}
    return frozenset(names - {""})


def _runs_backward(node: ast.Call) -> bool:
    """Return whether a call is ``loss.backward()`` or ``optimizer.step()``."""
    if not isinstance(node.func, ast.Attribute):
        return False
    owner = _last_two(node.func.value).rpartition(".")[2]
    if node.func.attr == "step":
        return owner.lower().startswith("opt")
    return (
        node.func.attr == "backward" and owner not in ("self", "ctx", "") and not node.keywords and len(node.args) <= 1
    )


def _names_of(module: Module, function: Function) -> set[str]:
    """Return the name by which code calls a function: ``f``, or ``self.f`` for a method."""
    is_method = isinstance(module.parents.get(function), ast.ClassDef)
    return {f"self.{function.name}" if is_method else function.name}


def _last_two(node: ast.AST) -> str:
    """Return ``f`` or ``self.f``; an empty text for longer names, which belong to another object."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return ""


@lru_cache(maxsize=2)
def is_graph_only(module: Module) -> bool:
    """Return whether a file is only for the static graph, whose rules for computing, keeping and freeing values differ.

    Either it sets this mode and no other (``set_context(mode=GRAPH_MODE)``), or it splits operators over devices
    (``self.mul.shard(((1, 1), (1, 1)))``) or uses parts of MindFormers that do, which only graphs support.
    """
    modes = {
        ast.unparse(keyword.value).rpartition(".")[2]
        for call, full in module.calls
        if full.endswith((".set_context", "?set_context"))
        for keyword in call.keywords
        if keyword.arg == "mode"
    }
    if modes:
        return modes <= {"GRAPH_MODE", "0"}
    parts = {name for name in module.names.values() if name.startswith("mindformers.")}
    if parts and not any(name.startswith(_DYNAMIC) for name in parts):
        return True
    return any(_cuts(call) or full.endswith(".MultitypeFuncGraph") for call, full in module.calls)


def is_compiled(module: Module, node: ast.AST) -> bool:
    """Return whether a node is in a function or class that is compiled to a graph (``@jit``)."""
    around = (one for one in (node, *module.around(node)) if isinstance(one, (*FUNCTIONS, ast.ClassDef)))
    return any(is_jit(module, mark) for one in around for mark in one.decorator_list)


def is_jit(module: Module, mark: ast.expr) -> bool:
    """Return whether a decorator, or a call that makes a function, compiles to a graph."""
    return _JIT.search(module.name(mark.func if isinstance(mark, ast.Call) else mark)) is not None


def _cuts(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "shard" or not call.args:
        return False
    first = call.args[0]
    return isinstance(first, ast.Tuple) and bool(first.elts) and all(isinstance(one, ast.Tuple) for one in first.elts)
