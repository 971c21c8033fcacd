"""Text with positions: YAML, shell scripts and Python as their author wrote them, edited in place and written back whole."""

SCRIPTS = (".sh", ".bash")  # the files that are taken for launch scripts
