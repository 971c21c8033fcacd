"""Code that runs within a training that ``ms-tune memory run`` starts: it imports nothing of ms-tune."""
