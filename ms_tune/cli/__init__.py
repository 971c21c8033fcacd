"""The command line: one thin module a command. Parse arguments, call one function, hand the result to render/."""

import gc

# Nearly all that start-up makes lives to the end; to look for rubbish among it takes a twentieth of `lint`'s time. So this stands in
# front of all imports.
gc.set_threshold(50_000)  # objects made before Python looks for the next rubbish; its default is 700
