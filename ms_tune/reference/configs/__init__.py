"""Configs of dynamic-graph frameworks, read into the neutral model."""
