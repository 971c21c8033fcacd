"""Weights that are shared out; here over one rank, where that is about the gradients only."""
