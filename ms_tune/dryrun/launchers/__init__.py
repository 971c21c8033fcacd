"""Launchers of a simulated script: ``msrun``, ``torchrun`` and ``python -m torch.distributed.launch`` start one rank a stage.

A script runs as it is, with programs of ms-tune's first in its PATH. ``arguments`` reads what a launcher was told, ``stand_in`` is the
program that stands in a launcher's place, ``job`` what it leaves behind.
"""
