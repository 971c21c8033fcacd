"""Pure arithmetic of layers: where each is placed, what it recomputes and what it swaps. No files, processes or printing."""
