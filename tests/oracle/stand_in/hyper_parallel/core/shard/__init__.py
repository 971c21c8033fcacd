"""Split a network."""
