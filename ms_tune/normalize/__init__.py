"""From the text of a config to the plan of its layers, and back."""
