"""Feed mutated files to the readers and the analysis; ``python -m tests.fuzz`` runs any number."""
