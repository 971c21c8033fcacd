"""Tests of ms-tune; the folders mirror those of the package."""
