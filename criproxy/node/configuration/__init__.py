"""Which configuration is in force: loaded, judged, kept for the next start, and reloaded."""
