"""Comparisons of ms-tune with the frameworks' own code."""
