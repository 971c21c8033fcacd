"""What stands behind ``ms-tune fit CONFIG``: figures from small dryruns, a plan from them, and the plan's own dryrun."""
