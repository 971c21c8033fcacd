"""Tests of the readers of trace files."""
