"""Measure real runs from their logs: step times, throughput, utilization."""
