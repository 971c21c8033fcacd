"""Plans written in the form of another framework."""
