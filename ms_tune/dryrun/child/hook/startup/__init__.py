"""The folder that stands on the ``PYTHONPATH`` of a simulated program; nothing else in it may be importable."""
