"""Which layers stand where and what they recompute: schedules, memory tables, plans, their search and its certificate."""
