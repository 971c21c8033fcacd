"""Figures of real runs, from their logs."""
