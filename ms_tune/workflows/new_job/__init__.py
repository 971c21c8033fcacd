"""Write a job from nothing: a model, a number of NPUs, and the layout, recomputation, config and launch script for them."""
