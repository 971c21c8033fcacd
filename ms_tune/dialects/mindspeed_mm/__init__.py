"""MindSpeed-MM (PyTorch on Ascend): its FSDP2 YAML, `tools.json` and launch scripts are checked, not simulated."""
