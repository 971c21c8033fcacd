"""What each release of each framework knows: the only place of such facts."""
