"""One screen about a job: what it is, whether it fits, what matters most in its file, and what would help (``ms-tune check``)."""
