"""The report for the browser, in a real browser."""
