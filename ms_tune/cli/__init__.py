"""Provide the command line: one module per command parses arguments, calls one function and shows the result."""

import gc

# Start-up objects live until the end, and searching them for garbage takes 5 % of `lint`'s time. So this precedes all
# imports.
gc.set_threshold(50_000)  # new objects before the next garbage collection; the default is 700

# Command name and the module that defines it. The one-line help of NAME is the text "NAME.summary".
COMMANDS = {
    "check": "check",
    "lint": "lint",
    "rule": "rule",
    "schema": "schema",
    "server": "server",
    "init": "init",
    "demo": "demo",
    "normalize-recompute": "normalize",
    "migrate": "migrate",
    "dryrun": "dryrun",
    "memory": "memory",
    "runs": "runs",
    "report": "report",
    "fit": "fit",
    "metrics": "metrics",
    "profile": "profile",
    "help": "help",
}
# Task (its title is the text "cli.task.NAME") and the commands for it, as the help lists them.
TASKS = {
    "check": ("check", "lint", "rule", "demo", "help"),
    "write": ("init", "schema", "server", "migrate", "normalize-recompute"),
    "memory": ("dryrun", "fit", "memory", "runs", "report"),
    "speed": ("metrics", "profile"),
}
