"""Check Python training code by its syntax tree; nothing is imported or run. Files that do not import MindSpore are skipped."""
