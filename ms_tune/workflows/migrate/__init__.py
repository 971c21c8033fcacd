"""Implementation of ``migrate``: convert a static-graph config to the dynamic graph, and prove what stays the same."""
