"""Tests of the simulated run."""
