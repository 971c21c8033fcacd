"""Cuts a config down to what one simulated stage needs; one module a way of running it. What is changed is listed."""
