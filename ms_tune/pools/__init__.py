"""Memory pools replayed, and placements computed off line. Pure: no files, no terminal, no processes."""
