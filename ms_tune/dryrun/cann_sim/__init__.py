"""Stand-ins for CANN's shared libraries, so that MindSpore's Ascend back end loads on a machine without CANN.

The x86-64 wheel of MindSpore carries the whole Ascend plug-in; what it lacks are CANN's libraries. In simulation level 1
MindSpore replaces its table of acl functions by its own no-ops (``LoadSimulationApiSymbols``), its collective library by
a dummy, and launches no kernel. CANN is then needed only to satisfy the dynamic linker and static initialisers: shapes
are inferred, memory is allocated and tracked by MindSpore's own code.
"""
