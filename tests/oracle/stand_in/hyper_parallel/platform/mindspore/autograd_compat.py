"""Add ``loss.backward()`` to MindSpore, which from 2.10 on lacks only the methods of ``Tensor``."""

from __future__ import annotations

from mindspore import ops
from mindspore._c_expression import TensorPy, run_backward
from mindspore.graph.api import _pynative_executor


def _backward(self: TensorPy, gradient: TensorPy) -> None:
    """Add the gradients of every weight that this tensor depends on to the weight's ``grad``."""
    run_backward((self,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True)  # noqa: FBT003


def _own(name: str) -> property:
    """Return a property for an attribute that MindSpore has under a name with an underscore."""
    hidden = f"_{name}"
    return property(lambda self: getattr(self, hidden), lambda self, value: setattr(self, hidden, value))


def enable_mindspore_backward_compat() -> None:
    """Give tensors ``backward``, ``grad`` and ``requires_grad``, and record operators outside of ``value_and_grad`` too."""
    _pynative_executor.set_grad_flag(True)
    TensorPy.backward = _backward
    TensorPy.grad = _own("grad")
    TensorPy.requires_grad = _own("requires_grad")
    if not hasattr(TensorPy, "detach"):  # from 2.11 on
        TensorPy.detach = ops.stop_gradient
