"""Guests with many NUMA nodes."""
