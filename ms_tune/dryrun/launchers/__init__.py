"""Replace the launchers of a simulated script (``msrun``, ``torchrun``, ``torch.distributed.launch``): one rank per stage.

A script runs as it is, with ms-tune's programs first in its PATH. ``arguments`` reads a launcher's command line, ``stand_in``
is the program that replaces a launcher, ``job`` reads its results.
"""
