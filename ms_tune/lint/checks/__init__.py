"""Checks that need code; the others are declared in the checklists."""
