"""Read the files of the memory tracker, the runtime and the profiler. No analysis."""
