"""ms-tune against the frameworks' own code."""
