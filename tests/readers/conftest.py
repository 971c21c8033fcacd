"""Import polars, so that the small files of these tests are read with it, too."""

import polars as pl  # noqa: F401
