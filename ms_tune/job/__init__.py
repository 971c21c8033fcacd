"""The reader: a file, a script or a folder becomes a job, once."""
