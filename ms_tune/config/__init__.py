"""What a config says: its text with positions, its dialect, and the neutral model that other rooms compute with."""

SCRIPTS = (".sh", ".bash")  # the files that are taken for launch scripts
