"""Readers of what the memory tracker and the runtime write. Readers only: no analysis."""
