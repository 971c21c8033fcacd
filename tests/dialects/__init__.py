"""Tests of the arithmetic of layers."""
