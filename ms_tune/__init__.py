"""ms-tune: is a MindSpore large-model training config right, and does it fit, before any NPU is used."""

__version__ = "0.1.0"
