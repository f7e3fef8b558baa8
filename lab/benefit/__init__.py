"""Measures what users gain."""
