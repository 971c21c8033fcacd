"""The folder that comes first in ``PYTHONPATH``."""
