"""Tests of source texts and their edits."""
