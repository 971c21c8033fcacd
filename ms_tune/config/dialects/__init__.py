"""One module a dialect: recognise it, read it into the neutral model, know its keys."""
