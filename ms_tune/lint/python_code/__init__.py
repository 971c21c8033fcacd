"""Python training code, by its syntax tree: nothing is imported, nothing is run. PyTorch's spellings are the same, so files that import no MindSpore are left alone."""
