"""Packages to put on the path of a test's separate process, instead of packages that are on no package index."""
