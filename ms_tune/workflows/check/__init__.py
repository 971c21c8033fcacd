"""Implementation of ``check``: one screen about a job with its memory verdict, its worst issues and a suggestion."""
