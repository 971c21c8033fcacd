"""Implementation of ``ms-tune fit CONFIG``: measure memory in small dryruns, search for a plan, and verify it by a dryrun."""
