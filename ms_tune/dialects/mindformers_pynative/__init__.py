"""MindFormers' dynamic graph, 2.0 and 2.1."""
