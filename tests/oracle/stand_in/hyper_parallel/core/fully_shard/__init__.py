"""Shard weights; here over one rank, which concerns the gradients only."""
