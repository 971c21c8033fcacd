"""The linter: checks read from checklists, findings with positions."""
