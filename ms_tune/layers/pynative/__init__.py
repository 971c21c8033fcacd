"""The rules of the dynamic graph of MindFormers."""
