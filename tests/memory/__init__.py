"""Tests of the analysis of traces."""
