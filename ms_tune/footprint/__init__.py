"""Analyse the memory of a trace: curve, categories, lifetimes, remedies. Exact in bytes."""
