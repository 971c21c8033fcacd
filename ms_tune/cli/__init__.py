"""The command line: one thin module a command. Parse arguments, call one function, hand the result to render/."""
