"""Implement ``migrate``: convert a static-graph config to the dynamic graph, and prove which settings are unchanged."""
