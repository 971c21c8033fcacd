"""What runs inside the simulated training process: the only modules that import MindSpore and MindFormers.

``python -m ms_tune.dryrun.child JOB`` reads the job file, trains, and writes beside it ``progress`` (what it is doing
now) and ``tensors.json`` (which addresses hold weights, optimizer state and gradients). MindSpore's tracker writes its
own files when the process ends.
"""
