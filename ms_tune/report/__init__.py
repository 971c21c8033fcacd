"""Show results as text, JSON and HTML pages; imports only result types, not the engines."""
