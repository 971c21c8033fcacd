"""Mutated files against the readers and the analysis; ``python -m tests.fuzz`` runs as many as wanted."""
