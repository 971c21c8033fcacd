"""Provide facts about each framework release and device; no other code contains such facts."""
