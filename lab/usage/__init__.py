"""What it costs to watch the use of cards."""
