"""``ms-tune check``: text, JSON, annotations."""
