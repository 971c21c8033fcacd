"""Reduce a config to the needs of one simulated stage, with a list of the changes; one module per way of running it."""
