"""Planning of layer placement and recomputation: schedules, memory tables, plans, their search and its optimality proof."""
