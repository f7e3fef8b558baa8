"""Scenarios and loads, scored, on made-up machines."""
