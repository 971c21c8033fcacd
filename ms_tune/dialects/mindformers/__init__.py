"""MindFormers' static graph, 1.6 to 2.1."""
