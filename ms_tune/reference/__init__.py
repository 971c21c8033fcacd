"""Our own transformer, and what reads configs for it."""
