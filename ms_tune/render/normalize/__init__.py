"""What `normalize` shows, in every form."""
