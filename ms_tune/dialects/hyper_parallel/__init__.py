"""HyperParallel's Trainer (PyTorch on Ascend): its YAML is checked, not simulated."""
