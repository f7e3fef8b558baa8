"""What `criproxy top` shows, as values: from the daemon's answers and from readings of the machine."""
