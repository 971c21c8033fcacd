"""Provide stand-ins for CANN's shared libraries, so that MindSpore's Ascend back end loads on a machine without CANN.

The x86-64 wheel of MindSpore contains the whole Ascend plug-in, but not CANN's libraries. In simulation level 1
MindSpore replaces its table of acl functions with its own no-ops (``LoadSimulationApiSymbols``), its collective library
with a dummy, and launches no kernel. CANN is then needed only to satisfy the dynamic linker and static initialisers:
shapes are inferred, and memory is allocated and tracked, by MindSpore's own code.
"""
