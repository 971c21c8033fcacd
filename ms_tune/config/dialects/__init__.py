"""One module a dialect: recognise it, read it into the neutral model, know its keys."""

from ms_tune.config.dialects.recognise import Dialect, Recognition, recognise

__all__ = ["Dialect", "Recognition", "recognise"]
