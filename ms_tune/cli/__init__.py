"""Provide the command line: one module per command parses arguments, calls one function and shows the result."""

import gc

# Start-up objects live until the end, and searching them for garbage takes 5 % of `lint`'s time. So this precedes all
# imports.
gc.set_threshold(50_000)  # new objects before the next garbage collection; the default is 700
