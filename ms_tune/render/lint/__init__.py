"""What `lint` shows, in every form."""
