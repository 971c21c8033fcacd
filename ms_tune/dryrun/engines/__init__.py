"""Where simulated processes run: on this machine, or on the machines of a Ray cluster."""
