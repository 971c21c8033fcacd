"""Compare, plan and replay the memory of traces, exact in bytes."""
