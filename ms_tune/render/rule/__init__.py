"""What `rule` shows, in every form."""
