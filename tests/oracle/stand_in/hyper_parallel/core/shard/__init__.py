"""How a network is cut."""
