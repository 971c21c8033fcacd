"""Compute the recomputation and swap of each layer of a config, and convert, expand or compare such plans."""
