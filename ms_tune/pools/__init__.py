"""Replay memory pools and compute offline placements. Pure: no files, no terminal, no processes."""
