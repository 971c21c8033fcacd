"""Mirror the package's structure."""
