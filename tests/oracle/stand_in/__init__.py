"""Packages to be put on the path of a test's own process, in the place of some that are on no package index."""
