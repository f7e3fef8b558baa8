"""Scenarios, loads and fleets of nodes, scored, on made-up machines."""
