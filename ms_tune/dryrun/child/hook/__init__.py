"""Run inside every Python process of a simulated program, around the user's own code.

The folder ``startup`` is on the ``PYTHONPATH``; Python imports ``sitecustomize`` from there, which loads these modules.
They use only the standard library, since the program's Python may differ from ms-tune's, and touch MindSpore only after
the program has imported it.
"""
