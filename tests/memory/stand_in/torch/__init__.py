"""A stand-in for PyTorch with CUDA: the functions that ``memory run`` uses, over address space without memory."""

import ctypes
import os
from types import SimpleNamespace

ctypes.CDLL(os.environ["STAND_IN_CUDART"], mode=ctypes.RTLD_GLOBAL)
observers: list = []
_C = SimpleNamespace(_cuda_attach_out_of_memory_observer=observers.append)
version = SimpleNamespace(cuda="12.8", hip=None)

from torch import cuda, optim  # noqa: E402, F401 - as PyTorch does
