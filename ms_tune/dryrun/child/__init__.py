"""Run inside the simulated training process: the only modules that import MindSpore and MindFormers.

``python -m ms_tune.dryrun.child JOB`` reads the job file, trains, and writes next to it ``progress`` (the current
action) and ``tensors.json`` (the addresses of weights, optimizer state and gradients). MindSpore's tracker writes its
own files when the process ends.
"""
