"""The parts of `criproxy support-bundle`: what it collects from a node, what it hides, and the archive.

Each part runs in a process of its own, so that a daemon, a driver or a disk that hangs costs one part, not the bundle.
"""
