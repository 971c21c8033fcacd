"""Renderers of `profile`."""
