"""Shows results: each module takes frozen results and writes text or JSON. No engine is imported here."""
