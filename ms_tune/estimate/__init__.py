"""Closed-form estimates of training memory, operations and communication; no files, no processes."""
