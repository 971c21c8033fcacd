"""The rules of the static graph."""
