"""Reads who uses how much of which card on this machine, and acts where a container is over its quota."""
