"""What is written down of steps: history, log lines, recordings."""
