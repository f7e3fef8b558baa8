"""What holds under every policy, one rule per file."""
