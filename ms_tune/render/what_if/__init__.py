"""What `what_if` shows, in every form."""
