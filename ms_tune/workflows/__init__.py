"""Combine several engines of ms-tune into commands."""
