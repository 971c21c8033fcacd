"""Reduce a config to what one simulated stage needs, with a list of the changes; one module per way of running it."""
