"""Mark the folder that is on the ``PYTHONPATH`` of a simulated program; nothing else in it may be importable."""
