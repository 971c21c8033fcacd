"""Tests of simulated runs."""
