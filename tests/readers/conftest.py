"""Files of these tests are small, and are read with polars all the same, which is so once it is imported."""

import polars as pl  # noqa: F401
