"""Pure arithmetic of layers: where each one is placed and what it recomputes. No files, no processes, no printing."""
