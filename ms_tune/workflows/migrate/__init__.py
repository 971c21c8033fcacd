"""A static-graph config as a dynamic-graph one: what became of every key, the new file, and the proof that it does the same."""
