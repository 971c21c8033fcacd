"""MindSpeed-Core-MS r0.1.0."""
