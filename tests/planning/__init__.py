"""Tests of schedules, tables, plans and their search."""
