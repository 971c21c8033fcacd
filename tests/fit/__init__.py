"""Tests of the table from dryruns, of plans for configs, and of the dryruns that verify them."""
