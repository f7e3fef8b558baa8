"""Policies: where a container goes. Pure; one file each."""
