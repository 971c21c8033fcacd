"""Compute what each layer of a config recomputes and swaps, and convert, expand or compare such plans."""
