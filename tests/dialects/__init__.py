"""Tests of the plans of layers."""
