"""What real runs did: figures from their logs, verdicts from their profiles. Reads files by `trace`, runs nothing."""
