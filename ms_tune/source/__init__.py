"""Read YAML, shell scripts and Python with text positions, edit them in place and write them back."""

SCRIPTS = (".sh", ".bash")  # suffixes of launch scripts
