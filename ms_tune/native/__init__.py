"""C sources compiled when they are first needed, with whatever compiler there is, and kept in ms-tune's cache."""
