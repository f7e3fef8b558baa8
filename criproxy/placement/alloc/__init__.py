"""Algorithms that policies share: pure functions over the model's values."""
