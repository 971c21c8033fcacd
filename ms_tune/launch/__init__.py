"""What a launch script starts: its variables, programs, arguments, files; what cannot be evaluated is named.

:func:`ms_tune.launch.read.read_launches` is the door. A script is never run. Variables, defaults (``${A:-x}``), arithmetic,
arrays, functions, branches and sourced files are followed as bash would; what depends on a command's output, on how the
script is started, on a loop or on the environment is an :class:`~ms_tune.launch.values.Unknown` with its reason, never a guess.
"""
