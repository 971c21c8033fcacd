"""What `planning` shows, in every form."""
