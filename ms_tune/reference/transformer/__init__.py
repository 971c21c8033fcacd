"""Implement ms-tune's own transformer in MindSpore's dynamic graph, for use if the user's framework cannot be imported.

It has the parameters, activations, recomputation, gradient accumulation and sharded optimizer of the config, built from the
mint operators of MindSpeed-Core-MS, so that MindSpore's allocator receives the requests of a real training step. All figures
from it are labelled as ms-tune's own. Every module here imports MindSpore, so only child processes import them. Code that does
not need MindSpore, such as groups of ranks, is outside this folder.
"""
