"""Distributed tensors."""
