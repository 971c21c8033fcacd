"""Offsets for the blocks of a trace, computed off line: the solver behind ``memory plan``.

``placement.c`` holds the loops that Python is measured to be too slow for; without a compiler there are still plans,
worse ones.
"""
