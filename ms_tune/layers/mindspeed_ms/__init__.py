"""The rules of MindSpeed-Core-MS r0.1.0."""
