"""From a trace to what is said of its memory: curve, categories, lifetimes, remedies. Exact in bytes."""
