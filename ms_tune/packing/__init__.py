"""Offline placement of a trace's memory blocks: the solver of ``memory plan``.

``placement.c`` contains the loops that are too slow in Python; without a compiler, plans are still made, but worse ones.
"""
