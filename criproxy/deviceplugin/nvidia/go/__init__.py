"""YAML, numbers and durations as Go reads them."""
