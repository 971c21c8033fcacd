"""Find why a step is slow, from an Ascend profile."""
