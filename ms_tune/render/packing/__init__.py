"""What `packing` shows, in every form."""
