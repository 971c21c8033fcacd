"""A small compiled core for what Python is measured to be too slow for; without it there are still plans, worse ones.

``placement.c`` is compiled when it is first needed, with whatever C compiler there is, and kept in ms-tune's cache.
"""
