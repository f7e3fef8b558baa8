"""NVIDIA's file and command line: reading, defaults, mistakes."""
