"""Decide whether a job fits, for all commands: need, usable memory and reserve. Pure arithmetic."""
