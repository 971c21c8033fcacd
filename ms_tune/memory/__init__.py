"""Analysis of a trace: functions from a trace to a frozen result, exact in bytes."""
