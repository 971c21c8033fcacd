"""Renderers of `metrics`."""
