"""Test the HTML report in a real browser."""
