"""What `memory` shows, in every form."""
