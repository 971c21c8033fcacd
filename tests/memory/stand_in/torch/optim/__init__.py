"""Optimizers."""

from torch.optim import optimizer

SGD = optimizer.SGD
del optimizer  # as PyTorch does
