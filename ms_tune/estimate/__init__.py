"""Closed-form arithmetic about training: no files, no processes."""
