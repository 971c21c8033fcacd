"""Launchers of a simulated script: ``msrun``, ``torchrun`` and ``python -m torch.distributed.launch`` start one rank a stage.

A script runs as it is, with the programs of ``programs`` first in its PATH. ``options`` reads what a launcher was told,
``stages`` chooses the ranks, ``stand_in`` is the program that stands in a launcher's place, ``job`` what it leaves behind.
"""
