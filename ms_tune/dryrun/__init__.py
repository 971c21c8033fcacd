"""Runs the real MindSpore on its Ascend back end in simulation, in child processes, and judges what it needed."""
