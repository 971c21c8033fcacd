"""Launch scripts: what they set and start, without running them; what cannot be evaluated is named."""
