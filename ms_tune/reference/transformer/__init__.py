"""ms-tune's own transformer in MindSpore's dynamic graph, run where the user's framework cannot be imported.

It has the parameters, activations, recomputation, gradient accumulation and sharded optimizer that the config asks
for, made of the mint operators that MindSpeed-Core-MS uses, so that MindSpore's allocator sees what a training step
would ask of it. It is labelled as ms-tune's own wherever a figure from it is shown.

Every module imports MindSpore: only child processes import them. What needs none of it, such as groups of ranks, is beside this folder.
"""
