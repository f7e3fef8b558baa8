"""Measures what criproxy adds to calls."""
