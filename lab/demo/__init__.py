"""Puts sample pods through criproxy and prints where they landed."""
