"""Provide ms-tune's own transformer, and read configs for it."""
