"""Measures the device plugin with many ids."""
