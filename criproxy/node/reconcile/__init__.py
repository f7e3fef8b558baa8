"""Brings what is applied to what is desired: updates of ours to running containers."""
