"""Evaluate launch scripts without running them: the variables they set, the programs they start, the unknown values."""
