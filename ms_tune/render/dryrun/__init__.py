"""What `dryrun` shows, in every form."""
