"""Run the command line with ``python -m ms_tune``."""

from ms_tune.cli.main import entry_point

if __name__ == "__main__":
    entry_point()
