"""Shows results as text, JSON and pages. Imports result types only."""
